"""Signatures of RSA (RFC 8017) and ECDSA (FIPS 186-5, SEC 2), verified with integers.

A key is (RSA, modulus, exponent) or (ECC, number of the curve, x, y), with the numbers of
TPM 2.0 Library, Part 2. Nothing here is fast, or safe for a private key that matters.
"""

import functools
import hashlib

RSA, ECC = 0x0001, 0x0023

# DigestInfo of RFC 8017, 9.2, without the digest.
DIGEST_INFO = {name: bytes.fromhex(prefix) for name, prefix in {
    "sha1": "3021300906052b0e03021a05000414",
    "sha256": "3031300d060960864801650304020105000420",
    "sha384": "3041300d060960864801650304020205000430",
    "sha512": "3051300d060960864801650304020305000440",
}.items()}


class Curve:
    """A curve y^2 = x^3 - 3x + b with a base point of this order."""

    def __init__(self, oid, p, b, order, base):
        self.oid, self.p, self.b, self.order = bytes.fromhex(oid), p, int(b, 16), int(order, 16)
        self.base = tuple(int(v, 16) for v in base)
        self.width = (p.bit_length() + 7) // 8

    def holds(self, x, y):
        return x < self.p and y < self.p and (y * y - x * x * x + 3 * x - self.b) % self.p == 0

    def add(self, a, b):
        """The sum of two points; None is the point at infinity."""
        if a is None or b is None:
            return a or b
        if a[0] == b[0]:
            if (a[1] + b[1]) % self.p == 0:
                return None
            slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, self.p)
        else:
            slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, self.p)
        x = (slope * slope - a[0] - b[0]) % self.p
        return x, (slope * (a[0] - x) - a[1]) % self.p

    def times(self, k, point):
        total = None
        for bit in bin(k)[2:]:
            total = self.add(total, total)
            if bit == "1":
                total = self.add(total, point)
        return total


CURVES = {
    0x0003: Curve(
        "06082a8648ce3d030107", 2**256 - 2**224 + 2**192 + 2**96 - 1,
        "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b",
        "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
        ("6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
         "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5")),
    0x0004: Curve(
        "06052b81040022", 2**384 - 2**128 - 2**96 + 2**32 - 1,
        "b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aef",
        "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973",
        ("aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab7",
         "3617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f")),
    0x0005: Curve(
        "06052b81040023", 2**521 - 1,
        "51953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e"
        "156193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00",
        "1fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa"
        "51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409",
        ("c6858e06b70404e9cd9e3ecb662395b4429c648139053fb521f828af606b4d3dbaa14b5e77efe75928fe1dc127a2ffa8de3348b3c1856a429bf97e7e31c2e5bd66",
         "11839296a789a3bc0045c8a5fb42c7d1bd998f54449579b446817afbd17273e662c97ee72995ef42640c550b9013fad0761353c7086a272c24088be94769fd16650")),
}


@functools.lru_cache(maxsize=None)
def verify_ecdsa(key, name, message, r, s):
    curve = CURVES[key[1]]
    if not curve.holds(*key[2:]) or not (0 < r < curve.order and 0 < s < curve.order):
        return False
    digest = hashlib.new(name, message).digest()
    e = int.from_bytes(digest, "big") >> max(0, 8 * len(digest) - curve.order.bit_length())
    w = pow(s, -1, curve.order)
    point = curve.add(curve.times(e * w % curve.order, curve.base), curve.times(r * w % curve.order, key[2:]))
    return point is not None and point[0] % curve.order == r


def encoded(key, signature):
    """What an RSA signature is of, as long as the modulus, or None."""
    size = (key[1].bit_length() + 7) // 8
    if len(signature) != size or int.from_bytes(signature, "big") >= key[1]:
        return None
    return pow(int.from_bytes(signature, "big"), key[2], key[1]).to_bytes(size, "big")


def verify_rsassa(key, name, message, signature):
    padded = encoded(key, signature)
    digest = DIGEST_INFO[name] + hashlib.new(name, message).digest()
    return padded is not None and padded == b"\x00\x01" + b"\xff" * (len(padded) - len(digest) - 3) + b"\x00" + digest


def mgf1(name, seed, size):
    blocks = -(-size // hashlib.new(name).digest_size)
    return b"".join(hashlib.new(name, seed + n.to_bytes(4, "big")).digest() for n in range(blocks))[:size]


def mask(data, stream):
    return bytes(a ^ b for a, b in zip(data, stream, strict=True))


def verify_rsapss(key, name, message, signature):
    """RSASSA-PSS with MGF1 of the same hash and a salt as long as its digest."""
    digest = hashlib.new(name, message).digest()
    whole, bits = encoded(key, signature), key[1].bit_length() - 1
    if whole is None:
        return False
    whole = whole[len(whole) - (bits + 7) // 8:] if int.from_bytes(whole, "big") >> bits == 0 else b""
    if len(whole) < 2 * len(digest) + 2 or whole[-1] != 0xBC:
        return False
    masked, h = whole[:-len(digest) - 1], whole[-len(digest) - 1:-1]
    db = mask(masked, mgf1(name, h, len(masked)))
    db = bytes([db[0] & 0xFF >> 8 * len(whole) - bits]) + db[1:]
    padding, salt = db[:-len(digest)], db[-len(digest):]
    return padding == b"\x00" * (len(padding) - 1) + b"\x01" and hashlib.new(name, bytes(8) + digest + salt).digest() == h
