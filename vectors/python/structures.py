"""TPM structures and DER, by docs/protocol.md and no code of the SDK.

The structures are those of TPM 2.0 Library, Part 2: TPMS_ATTEST (10.12.12), TPMT_PUBLIC
(12.2.4), TPMT_SIGNATURE (11.3.4). What is wrong is Refused, by the name of the check.
"""

import base64
import hashlib

from signatures import CURVES, ECC, RSA, verify_ecdsa, verify_rsapss, verify_rsassa

HASHES = {0x0004: "sha1", 0x000B: "sha256", 0x000C: "sha384", 0x000D: "sha512"}
# Hashes that a scheme may name though no Name or statement is made with them.
OTHER_HASHES = {0x0012, 0x0027, 0x0028, 0x0029}
AES, NULL = 0x0006, 0x0010
RSASSA, RSAES, RSAPSS, OAEP, ECDSA, ECDAA = 0x0014, 0x0015, 0x0016, 0x0017, 0x0018, 0x001A
CERTIFY, QUOTE = 0x8017, 0x8018

# Schemes by what follows their identifier: so many 16-bit numbers, the first a hash.
RSA_SCHEMES = {NULL: 0, RSAES: 0, RSASSA: 1, RSAPSS: 1, OAEP: 1}
ECC_SCHEMES = {NULL: 0, ECDSA: 1, ECDAA: 2, 0x0019: 1, 0x001B: 1, 0x001C: 1, 0x001D: 1}
KDF_SCHEMES = {NULL: 0, 0x0007: 1, 0x0020: 1, 0x0021: 1, 0x0022: 1}

FIXED_TPM, FIXED_PARENT, ORIGIN = 1 << 1, 1 << 4, 1 << 5
ENCRYPTED_DUPLICATION, RESTRICTED, DECRYPT, SIGN, X509_SIGN = 1 << 11, 1 << 16, 1 << 17, 1 << 18, 1 << 19
ATTRIBUTES = 0x000F0FF6  # the bits that have a meaning

RSA_ALGORITHM = bytes.fromhex("300d06092a864886f70d0101010500")
EC_ALGORITHM = bytes.fromhex("06072a8648ce3d0201")


class Refused(Exception):
    """A refusal, by the name of the check."""


class Broken(Exception):
    """The vector itself is at fault."""


ATTEST_SIZE, ATTEST_ENCODING = "attest-size", "attest-encoding"
MAGIC, TYPE = "attest-magic", "attest-type"
PUBLIC_SIZE, PUBLIC_ENCODING, KEY_TYPE = "public-size", "public-encoding", "tpm-key-type"
NAME_ALGORITHM, WEAK, POINT = "name-algorithm", "tpm-key-strength", "key-point"
SIGNATURE_SIZE, SIGNATURE_ENCODING, SIGNATURE_SCHEME = "tpm-signature-size", "signature-encoding", "signature-scheme"
SIGNATURE_LENGTH, SIGNATURE_RANGE, SIGNATURE = "signature-length", "signature-range", "tpm-signature"
AK_ATTRIBUTES, AK_SCHEME = "ak-attributes", "ak-scheme"


def need(condition, name):
    if not condition:
        raise Refused(name)


class Reader:
    """Reads big-endian numbers and sized buffers; a fault is the check that it is given."""

    def __init__(self, data, fault):
        self.data, self.fault = data, fault

    def take(self, size):
        need(size <= len(self.data), self.fault)
        out, self.data = self.data[:size], self.data[size:]
        return out

    def number(self, size):
        return int.from_bytes(self.take(size), "big")

    def buffer(self, limit):
        size = self.number(2)
        need(size <= limit, self.fault)
        return self.take(size)

    def end(self):
        need(not self.data, self.fault)

    def scheme(self, forms):
        alg = self.number(2)
        need(alg in forms, self.fault)
        rest = [self.number(2) for _ in range(forms[alg])]
        need(not rest or rest[0] in HASHES or rest[0] in OTHER_HASHES, self.fault)
        return (alg, *rest)


class Attest:
    """A TPMS_ATTEST of TPM2_Certify or TPM2_Quote, parsed to its end."""

    def __init__(self, data):
        need(len(data) <= 1024, ATTEST_SIZE)
        self.raw, r = data, Reader(data, ATTEST_ENCODING)
        need(r.number(4) == 0xFF544347, MAGIC)
        self.type = r.number(2)
        self.signer, self.extra = r.buffer(66), r.buffer(66)
        r.take(8)  # clock
        self.counts = r.take(4 + 4)  # resetCount, restartCount
        need(r.number(1) <= 1, ATTEST_ENCODING)  # safe
        r.take(8)  # firmwareVersion
        need(self.type in (CERTIFY, QUOTE), TYPE)
        if self.type == CERTIFY:
            self.name, self.qualified = r.buffer(66), r.buffer(66)
        else:
            banks = r.number(4)
            need(banks <= 16, ATTEST_ENCODING)
            self.selections = []
            for _ in range(banks):
                bank, size = r.number(2), r.number(1)
                need(1 <= size <= 4, ATTEST_ENCODING)
                self.selections.append((bank, r.take(size)))
            self.digest = r.buffer(64)
        r.end()


class Public:
    """A TPMT_PUBLIC of an RSA or ECC key."""

    def __init__(self, data):
        need(1 <= len(data) <= 1024, PUBLIC_SIZE)
        self.raw, r = data, Reader(data, PUBLIC_ENCODING)
        self.type, self.name_alg, self.attributes = r.number(2), r.number(2), r.number(4)
        need(self.type in (RSA, ECC), KEY_TYPE)
        need(self.name_alg in HASHES, NAME_ALGORITHM)
        need(not self.attributes & ~ATTRIBUTES, PUBLIC_ENCODING)
        policy = r.buffer(64)
        need(len(policy) in (0, hashlib.new(HASHES[self.name_alg]).digest_size), PUBLIC_ENCODING)
        self.symmetric = r.number(2)
        need(self.symmetric in (NULL, AES), PUBLIC_ENCODING)
        if self.symmetric == AES:
            r.take(4)
        if self.type == RSA:
            self.scheme = r.scheme(RSA_SCHEMES)
            self.bits, self.exponent = r.number(2), r.number(4) or 65537
            need(8 <= self.bits <= 4096 and self.bits % 8 == 0, PUBLIC_ENCODING)
            self.modulus = r.buffer(512)
        else:
            self.scheme = r.scheme(ECC_SCHEMES)
            self.curve = r.number(2)
            need(self.curve in CURVES, WEAK)
            r.scheme(KDF_SCHEMES)
            self.head = data[:len(data) - len(r.data)]
            self.x, self.y = r.buffer(66), r.buffer(66)
        r.end()

    def material(self):
        """The key alone, comparable: leading zeros of coordinates do not count."""
        if self.type == RSA:
            return (RSA, int.from_bytes(self.modulus, "big"), self.exponent)
        return (ECC, self.curve, int.from_bytes(self.x, "big"), int.from_bytes(self.y, "big"))

    def key(self):
        """The key, if there is one."""
        if self.type == RSA:
            need(len(self.modulus) * 8 == self.bits and self.modulus[0] != 0, PUBLIC_ENCODING)
            need(self.exponent < 1 << 31, WEAK)
        else:
            curve = CURVES[self.curve]
            need(max(len(self.x), len(self.y)) <= curve.width, POINT)
            need(curve.holds(*self.material()[2:]), POINT)
        return self.material()

    def strength(self):
        if self.type == RSA:
            rsa_strength(self.bits, self.exponent)

    def check_signs_statements(self):
        """Whether this can be an AK."""
        wanted = FIXED_TPM | FIXED_PARENT | ORIGIN | RESTRICTED | SIGN
        forbidden = DECRYPT | X509_SIGN | ENCRYPTED_DUPLICATION  # the last one: with fixedTPM
        need(self.attributes & (wanted | forbidden) == wanted, AK_ATTRIBUTES)
        need(self.scheme[0] in ((RSASSA, RSAPSS) if self.type == RSA else (ECDSA,)), AK_SCHEME)
        need(self.symmetric == NULL, AK_SCHEME)

    def names(self):
        """The Name of the received bytes, and for ECC those with coordinates of another width."""
        areas = [self.raw]
        if self.type == ECC and self.x and self.y:
            width = CURVES[self.curve].width
            forms = [(v, v.lstrip(b"\0"), v.lstrip(b"\0").rjust(width, b"\0")) for v in (self.x, self.y)]
            areas += [self.head + sized(x) + sized(y) for x in forms[0] for y in forms[1]]
        return [self.name_alg.to_bytes(2, "big") + hashlib.new(HASHES[self.name_alg], a).digest() for a in areas]


def sized(data):
    return len(data).to_bytes(2, "big") + data


def is_name(data):
    h = HASHES.get(int.from_bytes(data[:2], "big"))
    return h is not None and len(data) == 2 + hashlib.new(h).digest_size


def algorithm(name):
    return int.from_bytes(name[:2], "big")


def rsa_strength(bits, exponent):
    need(2048 <= bits <= 4096, WEAK)
    need(exponent == 65537, WEAK)


def tlv(data, tag, fault):
    """One DER element with a definite, minimal length: its content, and what follows."""
    r = Reader(data, fault)
    need(r.number(1) == tag, fault)
    size = r.number(1)
    if size >= 0x80:
        octets = size - 0x80
        need(1 <= octets <= 3, fault)
        size = r.number(octets)
        need(size >= 0x80 and size >> 8 * (octets - 1), fault)
    return r.take(size), r.data


def integer(data, fault):
    content, rest = tlv(data, 0x02, fault)
    need(content and content[0] < 0x80 and not (len(content) > 1 and content[0] == 0 and content[1] < 0x80), fault)
    return int.from_bytes(content, "big"), rest


def der(tag, content):
    size = len(content)
    octets = (size.bit_length() + 7) // 8
    length = bytes([size]) if size < 0x80 else bytes([0x80 + octets]) + size.to_bytes(octets, "big")
    return bytes([tag]) + length + content


def der_integer(n):
    return der(0x02, n.to_bytes(n.bit_length() // 8 + 1, "big"))


def spki_key(data):
    """The key of a SubjectPublicKeyInfo, in the form of Public.material."""
    fault = "the vector's SubjectPublicKeyInfo"
    body, rest = tlv(data, 0x30, fault)
    need(not rest, fault)
    parameters, bits = tlv(body, 0x30, fault)
    string, rest = tlv(bits, 0x03, fault)
    need(not rest and string[:1] == b"\0", fault)
    if body.startswith(RSA_ALGORITHM):
        n, rest = integer(tlv(string[1:], 0x30, fault)[0], fault)
        return (RSA, n, integer(rest, fault)[0])
    for number, curve in CURVES.items():
        if parameters == EC_ALGORITHM + curve.oid:
            need(len(string) == 2 + 2 * curve.width and string[1] == 4, fault)
            x, y = string[2:2 + curve.width], string[2 + curve.width:]
            return (ECC, number, int.from_bytes(x, "big"), int.from_bytes(y, "big"))
    raise Refused(fault)


def key_spki(key):
    if key[0] == RSA:
        return der(0x30, RSA_ALGORITHM + der(0x03, b"\0" + der(0x30, der_integer(key[1]) + der_integer(key[2]))))
    curve = CURVES[key[1]]
    point = b"\4" + key[2].to_bytes(curve.width, "big") + key[3].to_bytes(curve.width, "big")
    return der(0x30, der(0x30, EC_ALGORITHM + curve.oid) + der(0x03, b"\0" + point))


class Signature:
    """A TPMT_SIGNATURE, or a bare signature of a scheme that the vector names."""

    def __init__(self, data, raw):
        need(1 <= len(data) <= 1024, SIGNATURE_SIZE)
        if raw is not None:
            self.bare(data, raw)
            return
        r = Reader(data, SIGNATURE_ENCODING)
        self.alg = r.number(2)
        need(self.alg in (RSASSA, RSAPSS, ECDSA), SIGNATURE_SCHEME)
        self.hash = r.number(2)
        need(self.hash in HASHES, SIGNATURE_SCHEME)
        self.parts = [r.buffer(66), r.buffer(66)] if self.alg == ECDSA else [r.buffer(512)]
        r.end()

    def bare(self, data, raw):
        self.alg = {"rsassa": RSASSA, "rsapss": RSAPSS, "ecdsa": ECDSA}[raw["scheme"]]
        self.hash = {name: alg for alg, name in HASHES.items()}[raw["hash"]]
        self.parts = [data]
        if self.alg == ECDSA:
            body, rest = tlv(data, 0x30, SIGNATURE_ENCODING)
            r, after = integer(body, SIGNATURE_ENCODING)
            s, end = integer(after, SIGNATURE_ENCODING)
            need(not rest and not end and max(r, s) < 1 << 528, SIGNATURE_ENCODING)
            self.parts = [n.to_bytes((n.bit_length() + 7) // 8, "big") for n in (r, s)]
        else:
            need(len(data) <= 512, SIGNATURE_ENCODING)

    def fits(self, key):
        need((self.alg == ECDSA) == (key[0] == ECC), SIGNATURE_SCHEME)
        if key[0] == RSA:
            need(len(self.parts[0]) == (key[1].bit_length() + 7) // 8, SIGNATURE_LENGTH)
            return
        curve = CURVES[key[1]]
        for part in self.parts:
            need(len(part) <= curve.width, SIGNATURE_LENGTH)
            need(0 < int.from_bytes(part, "big") < curve.order, SIGNATURE_RANGE)

    def verify(self, key, message):
        name = HASHES[self.hash]
        if self.alg == ECDSA:
            good = verify_ecdsa(key, name, message, *(int.from_bytes(part, "big") for part in self.parts))
        else:
            good = (verify_rsapss if self.alg == RSAPSS else verify_rsassa)(key, name, message, self.parts[0])
        need(good, SIGNATURE)


def octets(text):
    return None if text is None else base64.b64decode(text, validate=True)
