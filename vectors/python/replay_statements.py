#!/usr/bin/env python3
"""Replays the test vectors of the class "statement" without any code of the SDK.

    replay_statements.py [FOLDER]

FOLDER is ../data beside this file, unless it is given. It needs Python's standard library and the openssl command,
which verifies the signatures. The structures are parsed by TPM 2.0 Library, Part 2:
TPMS_ATTEST (10.12.12), TPMT_PUBLIC (12.2.4), TPMT_SIGNATURE (11.3.4). Every vector of
level "statement", "quote" or "verify" must be refused by the check that it expects, or accepted,
and so must the accepted ones on the road of the AK certificate. Of an answer's own
checks only those of the AK and its statement are made here: its node policy, certificate
chain, times and membership are not. The exit status is 1 where a vector is not as it
expects, where an expectation is unknown, and where there is nothing to replay.
"""

import base64
import hashlib
import hmac
import json
import pathlib
import subprocess
import sys
import tempfile

HASHES = {0x0004: "sha1", 0x000B: "sha256", 0x000C: "sha384", 0x000D: "sha512"}
# Hashes that a scheme may name though no Name or statement is made with them.
OTHER_HASHES = {0x0012, 0x0027, 0x0028, 0x0029}
RSA, AES, NULL, ECC = 0x0001, 0x0006, 0x0010, 0x0023
RSASSA, RSAES, RSAPSS, OAEP, ECDSA, ECDAA = 0x0014, 0x0015, 0x0016, 0x0017, 0x0018, 0x001A
CERTIFY, QUOTE = 0x8017, 0x8018

# Schemes by what follows their identifier: so many 16-bit numbers, the first a hash.
RSA_SCHEMES = {NULL: 0, RSAES: 0, RSASSA: 1, RSAPSS: 1, OAEP: 1}
ECC_SCHEMES = {NULL: 0, ECDSA: 1, ECDAA: 2, 0x0019: 1, 0x001B: 1, 0x001C: 1, 0x001D: 1}
KDF_SCHEMES = {NULL: 0, 0x0007: 1, 0x0020: 1, 0x0021: 1, 0x0022: 1}

FIXED_TPM, ST_CLEAR, FIXED_PARENT, ORIGIN = 1 << 1, 1 << 2, 1 << 4, 1 << 5
ENCRYPTED_DUPLICATION, RESTRICTED, DECRYPT, SIGN, X509_SIGN = 1 << 11, 1 << 16, 1 << 17, 1 << 18, 1 << 19
ATTRIBUTES = 0x000F0FF6  # the bits that have a meaning


class Curve:
    """A curve y^2 = x^3 - 3x + b of FIPS 186-4, D.1.2."""

    def __init__(self, oid, p, b, order):
        self.oid, self.p, self.b, self.order = bytes.fromhex(oid), p, int(b, 16), int(order, 16)
        self.width = (p.bit_length() + 7) // 8

    def holds(self, x, y):
        return x < self.p and y < self.p and (y * y - x * x * x + 3 * x - self.b) % self.p == 0


CURVES = {
    0x0003: Curve(
        "06082a8648ce3d030107", 2**256 - 2**224 + 2**192 + 2**96 - 1,
        "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b",
        "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551"),
    0x0004: Curve(
        "06052b81040022", 2**384 - 2**128 - 2**96 + 2**32 - 1,
        "b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aef",
        "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973"),
    0x0005: Curve(
        "06052b81040023", 2**521 - 1,
        "51953eb9618e1c9a1f929a21a0b68540eea2da725b99b315f3b8b489918ef109e"
        "156193951ec7e937b1652c0bd3bb1bf073573df883d2c34f1ef451fd46b503f00",
        "1fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffa"
        "51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409"),
}
RSA_ALGORITHM = bytes.fromhex("300d06092a864886f70d0101010500")
EC_ALGORITHM = bytes.fromhex("06072a8648ce3d0201")

# Every check that this script can refuse with.
CHECKS = set()
# Checks of a request by itself, which this script does not make.
NODE_POLICY = {"key-strength"}


class Refused(Exception):
    pass


class Broken(Exception):
    """The vector itself is at fault."""


def check(name):
    CHECKS.add(name)
    return name


CERTIFY_OPTIONS = check("certify-options")
ATTEST_SIZE, ATTEST_ENCODING = check("attest-size"), check("attest-encoding")
MAGIC, TYPE = check("attest-magic"), check("attest-type")
PUBLIC_SIZE, PUBLIC_ENCODING, KEY_TYPE = check("public-size"), check("public-encoding"), check("tpm-key-type")
NAME_ALGORITHM, WEAK, POINT = check("name-algorithm"), check("tpm-key-strength"), check("key-point")
SIGNATURE_SIZE, SIGNATURE_ENCODING = check("tpm-signature-size"), check("signature-encoding")
SIGNATURE_SCHEME, SIGNATURE_HASH = check("signature-scheme"), check("signature-hash")
SIGNATURE_LENGTH, SIGNATURE_RANGE = check("signature-length"), check("signature-range")
SIGNATURE, QUALIFYING_DATA = check("tpm-signature"), check("qualifying-data")
NAME, QUALIFIED_NAME = check("certified-name"), check("certified-qualified-name")
SIGNER, KEY_MISMATCH = check("qualified-signer"), check("key-mismatch")
AK_IS_KEY, AK_MISMATCH = check("ak-is-certified-key"), check("ak-mismatch")
AK_ATTRIBUTES, AK_SCHEME = check("ak-attributes"), check("ak-scheme")
AK_PARENT, MESSAGE = check("ak-parent"), check("message-encoding")
QUOTE_OPTIONS, SELECTION, BANK = check("quote-options"), check("pcr-selection"), check("pcr-bank")
PCR_VALUE, PCR_DUPLICATE, PCR_MISSING = check("pcr-value"), check("pcr-duplicate"), check("pcr-missing")
NOT_QUOTED, RESETTABLE, PCR_DIGEST = check("pcr-not-quoted"), check("pcr-resettable"), check("pcr-digest")
BOOT, MISSING, POLICY = check("quote-boot"), check("quote-missing"), check("pcr-policy")
KEY_ATTRIBUTES, CLAIM, RESIDENCY = check("key-attributes"), check("key-residency-claim"), check("key-residency")


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
    need(65537 <= exponent < 1 << 31 and exponent % 2 == 1, WEAK)


def tlv(data, tag, fault):
    """One DER element with a definite, minimal length: its content, and what follows."""
    r = Reader(data, fault)
    need(r.number(1) == tag, fault)
    size = r.number(1)
    if size >= 0x80:
        octets = size - 0x80
        need(1 <= octets <= 2, fault)
        size = r.number(octets)
        need(size >= (0x80 if octets == 1 else 0x100), fault)
    return r.take(size), r.data


def integer(data, fault):
    content, rest = tlv(data, 0x02, fault)
    need(content and content[0] < 0x80 and not (len(content) > 1 and content[0] == 0 and content[1] < 0x80), fault)
    return int.from_bytes(content, "big"), rest


def der(tag, content):
    size = len(content)
    length = bytes([size]) if size < 0x80 else bytes([0x81, size]) if size < 0x100 else b"\x82" + size.to_bytes(2, "big")
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
        value = self.parts[0]
        if self.alg == ECDSA:
            value = der(0x30, b"".join(der_integer(int.from_bytes(p, "big")) for p in self.parts))
        pem = base64.encodebytes(key_spki(key)).decode()
        with tempfile.TemporaryDirectory() as folder:
            f = pathlib.Path(folder)
            (f / "key").write_text(f"-----BEGIN PUBLIC KEY-----\n{pem}-----END PUBLIC KEY-----\n")
            (f / "signature").write_bytes(value)
            (f / "message").write_bytes(message)
            command = ["openssl", "dgst", "-" + HASHES[self.hash], "-verify", f / "key", "-signature", f / "signature"]
            if self.alg == RSAPSS:
                command += ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"]
            done = subprocess.run(command + [f / "message"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        # A failure to verify is not a failure to run.
        verdict = {"Verified OK": True, "Verification failure": False, "Verification Failure": False}
        first = (done.stdout.splitlines() or [""])[0]
        if first not in verdict or verdict[first] != (done.returncode == 0):
            raise Broken(f"openssl dgst: {done.stdout}{done.stderr}")
        need(verdict[first], SIGNATURE)


OPTIONS = {
    "requireTPMResident", "allowDecryptionKey", "allowRestrictedKey", "insecureAllowAnyQualifyingData",
    "insecureEmptyQualifyingData", "insecureAllowAnyKey", "insecureAllowSHA1Signature", "insecureAllowSHA1Name",
}


class Signed:
    """What every statement of an AK is held against: attest, signature, ak (None for a bare key), ak_key, options."""

    def caller(self, s, public, key, data, refusal):
        """What the caller says of the AK and of the qualifying data; expected is None where any will do."""
        trust = s.get("akTrust") or ("issuer" if key else "credential")
        need({"credential": public, "issuer": key, "sender": public or key}[trust], refusal)
        self.trusted = trust != "sender"
        empty, unasked = ("insecure" + n + "QualifyingData" in self.options for n in ("Empty", "AllowAny"))
        need([bool(data), empty, unasked].count(True) == 1, refusal)
        self.expected = None if unasked else data or b""

    def check_name_algorithm(self, alg):
        need(HASHES[alg] != "sha1" or "insecureAllowSHA1Name" in self.options, NAME_ALGORITHM)

    def check_ak(self):
        if self.ak_key[0] == RSA:
            rsa_strength(self.ak_key[1].bit_length(), self.ak_key[2])
        if self.ak is None:
            return
        need(self.ak.material() == self.ak_key, AK_MISMATCH)
        self.check_name_algorithm(self.ak.name_alg)
        wanted = FIXED_TPM | FIXED_PARENT | ORIGIN | RESTRICTED | SIGN
        forbidden = DECRYPT | X509_SIGN | ENCRYPTED_DUPLICATION  # the last one: with fixedTPM
        need(self.ak.attributes & (wanted | forbidden) == wanted, AK_ATTRIBUTES)
        need(self.ak.scheme[0] in ((RSASSA, RSAPSS) if self.ak.type == RSA else (ECDSA,)), AK_SCHEME)
        need(self.ak.symmetric == NULL, AK_SCHEME)

    def check_signer(self):
        signer = self.attest.signer
        need(is_name(signer), SIGNER)
        if self.ak is None:
            self.check_name_algorithm(algorithm(signer))
            return
        need(algorithm(signer) == self.ak.name_alg and signer not in self.ak.names(), SIGNER)

    def check_signature_form(self):
        scheme = (self.signature.alg, self.signature.hash)
        need(self.ak is None or scheme == self.ak.scheme, SIGNATURE_SCHEME)
        need(HASHES[self.signature.hash] != "sha1" or "insecureAllowSHA1Signature" in self.options, SIGNATURE_HASH)
        self.signature.fits(self.ak_key)


class Statement(Signed):
    """The input of a vector, parsed; the order of the checks is VerifyCertify's."""

    def __init__(self, s):
        unknown = set(s) - {"attest", "signature", "public", "rawSignature", "akPublic", "akKey", "akTrust", "qualifyingData", "key", "options"}
        self.options = set(s.get("options") or [])
        if unknown or self.options - OPTIONS:
            raise Broken(f"unknown members or options {sorted(unknown | self.options - OPTIONS)}")
        data = {name: octets(s.get(name)) for name in ("attest", "signature", "public", "akPublic", "qualifyingData")}
        try:
            self.key, self.ak_key = (None if s.get(n) is None else spki_key(octets(s[n])) for n in ("key", "akKey"))
        except Refused as e:
            raise Broken(str(e)) from e
        self.caller(s, data["akPublic"], self.ak_key, data["qualifyingData"], CERTIFY_OPTIONS)
        need(self.trusted or "requireTPMResident" not in self.options, CERTIFY_OPTIONS)
        need((self.key is None) == ("insecureAllowAnyKey" in self.options), CERTIFY_OPTIONS)
        self.attest = Attest(data["attest"] or b"")
        self.public = Public(data["public"] or b"")
        self.signature = Signature(data["signature"] or b"", s.get("rawSignature"))
        self.ak = Public(data["akPublic"]) if data["akPublic"] else None
        if self.ak_key is None:
            self.ak_key = self.ak.key()

    def has(self, attributes):
        return self.public.attributes & attributes == attributes

    def resident(self):
        return self.has(FIXED_TPM | FIXED_PARENT) and self.attest.name != self.attest.qualified

    def verify(self):
        """Refuses, or returns what was found."""
        need(self.attest.type == CERTIFY, TYPE)
        need(self.expected is None or self.attest.extra == self.expected, QUALIFYING_DATA)
        self.check_key()
        self.check_ak()
        self.check_signer()
        self.check_attributes()
        self.check_residency()
        self.check_signature_form()
        self.signature.verify(self.ak_key, self.attest.raw)
        return {"tpmResident": self.trusted and self.resident()}

    def check_key(self):
        need(self.attest.name in self.public.names(), NAME)
        self.check_name_algorithm(self.public.name_alg)
        self.public.strength()
        need(self.public.material() != (self.ak.material() if self.ak else self.ak_key), AK_IS_KEY)
        found = self.public.key()
        need(self.key is None or found == self.key, KEY_MISMATCH)

    def check_attributes(self):
        if self.has(FIXED_TPM):
            need(self.has(FIXED_PARENT) and not self.has(ENCRYPTED_DUPLICATION), KEY_ATTRIBUTES)
        if self.has(RESTRICTED):
            need(self.has(SIGN) != self.has(DECRYPT) and "allowRestrictedKey" in self.options, KEY_ATTRIBUTES)
        need(not self.has(X509_SIGN), KEY_ATTRIBUTES)
        need(self.has(SIGN) or self.has(DECRYPT) and "allowDecryptionKey" in self.options, KEY_ATTRIBUTES)

    def check_residency(self):
        qualified = self.attest.qualified
        need(is_name(qualified) and algorithm(qualified) == self.public.name_alg, QUALIFIED_NAME)
        if qualified == self.attest.name:
            need(not self.public.attributes & (FIXED_TPM | FIXED_PARENT | RESTRICTED), CLAIM)
        need("requireTPMResident" not in self.options or self.resident(), RESIDENCY)


QUOTE_SET = {
    "insecureAllowAnyQualifyingData", "insecureEmptyQualifyingData", "insecureAllowSHA1Signature", "insecureAllowSHA1Name",
    "insecureAllowSHA1Bank",
}


def selected(selections, sha1):
    """The PCRs that are selected, in the order in which a TPM digests them."""
    need(selections, SELECTION)
    out = []
    for n, (bank, select) in enumerate(selections):
        need(bank in HASHES and (sha1 or HASHES[bank] != "sha1"), BANK)
        need(bank not in (b for b, _ in selections[:n]), SELECTION)
        found = [(bank, i) for i in range(8 * len(select)) if select[i // 8] >> i % 8 & 1]
        need(found, SELECTION)
        out += found
    return out


class Quote(Signed):
    """A quote with the values beside it; the order of the checks is VerifyQuote's."""

    def __init__(self, q):
        unknown = set(q) - {"attest", "signature", "rawSignature", "pcrs", "akPublic", "akKey", "akTrust", "qualifyingData", "selection", "options", "asked"}
        self.options = set(q.get("options") or [])
        if unknown or self.options - QUOTE_SET:
            raise Broken(f"unknown members or options {sorted(unknown | self.options - QUOTE_SET)}")
        data = {name: octets(q.get(name)) for name in ("attest", "signature", "akPublic", "akKey", "qualifyingData")}
        self.asked = q.get("asked")
        self.caller(q, data["akPublic"], data["akKey"], data["qualifyingData"], QUOTE_OPTIONS)
        self.wanted = None if q.get("selection") is None else [(s["bank"], octets(s["select"])) for s in q["selection"]]
        self.ak = Public(data["akPublic"]) if data["akPublic"] else None
        self.ak_key = spki_key(data["akKey"]) if data["akKey"] else self.ak.key()
        self.attest, self.signature = Attest(data["attest"]), Signature(data["signature"], q.get("rawSignature"))
        self.values = {}
        for p in q["pcrs"] or []:
            bank, value = p["bank"], octets(p["value"])
            need(bank in HASHES, BANK)
            need(0 <= p["index"] < 32, SELECTION)
            need(len(value) == hashlib.new(HASHES[bank]).digest_size, PCR_VALUE)
            need((bank, p["index"]) not in self.values, PCR_DUPLICATE)
            self.values[bank, p["index"]] = value

    def verify(self):
        """Refuses, or returns what was found."""
        need(self.attest.type == QUOTE, TYPE)
        need(self.expected is None or self.attest.extra == self.expected, QUALIFYING_DATA)
        sha1 = "insecureAllowSHA1Bank" in self.options
        pcrs = selected(self.attest.selections, sha1)
        need(self.wanted is None or sorted(pcrs) == sorted(selected(self.wanted, sha1)), SELECTION)
        need(set(pcrs) <= set(self.values), PCR_MISSING)
        need(set(self.values) <= set(pcrs), NOT_QUOTED)
        self.check_ak()
        self.check_signer()
        self.check_signature_form()
        digest = hashlib.new(HASHES[self.signature.hash], b"".join(self.values[p] for p in pcrs)).digest()
        need(digest == self.attest.digest, PCR_DIGEST)
        self.signature.verify(self.ak_key, self.attest.raw)
        found = {"clockTrusted": self.trusted and self.ak is not None and self.attest.signer == primary_name(self.ak)}
        if self.asked is not None:
            found["value"] = base64.b64encode(self.value(self.asked["bank"], self.asked["index"])).decode()
        return found

    def value(self, bank, index):
        need(index not in (16, 23), RESETTABLE)
        need((bank, index) in self.values, NOT_QUOTED)
        return self.values[bank, index]


def primary_name(ak):
    """The qualified name of a primary key of the endorsement hierarchy."""
    return ak.names()[0][:2] + hashlib.new(HASHES[ak.name_alg], bytes.fromhex("4000000b") + ak.names()[0]).digest()


def elements(data, tag=0x30):
    """The elements inside one DER element, each with tag and length."""
    content, rest = tlv(data, tag, MESSAGE)
    need(not rest, MESSAGE)
    out = []
    while content:
        _, rest = tlv(content, content[0], MESSAGE)
        out.append(content[:len(content) - len(rest)])
        content = rest
    return out


def labelled(key, label, binding):
    return hmac.new(key, label + b"\0" + binding, "sha256").digest()


class Answer:
    """A whole answer on the road of the AK certificate: what its statement is held against."""

    def __init__(self, v, environment):
        self.environment = {**environment, **v.get("environment", {})}
        pem = octets(v["object"]["spec"]["request"]).decode()
        blocks = [octets("".join(b.split("-----")[1].split())) for b in pem.split("-----BEGIN ")[1:]]
        if len(blocks) != 3 or blocks[1] != b"tpm/v1":
            raise Broken("no answer of tpm/v1")
        self.request_key = elements(elements(blocks[0])[0])[2]
        bundle = elements(blocks[2])
        self.certify, proof, *self.measured = (elements(s)[1] for s in elements(bundle[0]))
        self.binding, *rest = elements(proof)
        self.ak_public = tlv(rest[-1], 0x04, MESSAGE)[0]
        fields = elements(self.binding)
        self.road, self.key_id = fields[1][-1], tlv(fields[2], 0x04, MESSAGE)[0]
        self.chain = [elements(elements(c)[0]) for c in elements(bundle[1])] if len(bundle) > 1 else []

    def profile(self):
        """The profile of the issuer whose root's name stands above the chain."""
        for issuer in self.environment["issuers"]:
            if any(elements(elements(octets(root))[0])[5] == self.chain[-1][3] for root in issuer["roots"]):
                return issuer["profile"]
        raise Broken("no issuer for the AK certificate")

    def statement(self):
        parts = elements(self.certify)
        need(len(parts) == 3, MESSAGE)  # the last one, tpmTPublic, is optional in the draft
        ak, ak_spki = Public(self.ak_public), self.chain[0][6]
        need(ak.material() == spki_key(ak_spki), AK_MISMATCH)
        secrets = [octets(k["secret"]) for k in self.environment["ringKeys"] if bytes.fromhex(k["id"]) == self.key_id]
        self.secret = secret = labelled(secrets[0], b"nodeattest/tpm/v1 secret", self.binding)
        names = ["requireTPMResident"] if self.environment.get("requireTPMResident") else []
        if any(i["profile"].get("insecureAllowSHA1Signature") for i in self.environment["issuers"]):
            names.append("insecureAllowSHA1Signature")
        values = {
            "attest": tlv(parts[0], 0x04, MESSAGE)[0], "signature": tlv(parts[1], 0x04, MESSAGE)[0],
            "public": tlv(parts[2], parts[2][0], MESSAGE)[0], "akPublic": self.ak_public, "akKey": ak_spki,
            "qualifyingData": labelled(secret, b"nodeattest/tpm/v1 certify", self.binding), "key": self.request_key,
        }
        return Statement({name: base64.b64encode(value).decode() for name, value in values.items()} | {"options": names})

    def verify(self):
        s, profile = self.statement(), self.profile()
        found = s.verify()
        need(HASHES[s.signature.hash] != "sha1" or profile.get("insecureAllowSHA1Signature"), SIGNATURE_HASH)
        need(s.attest.signer == primary_name(s.ak) or profile.get("allowAKBelowOtherKeys"), AK_PARENT)
        self.check_quote(s)
        return found

    def check_quote(self, statement):
        """The quote after the proof: by the same AK, of the same challenge and boot."""
        good = self.environment.get("goodPCRs")
        if not self.measured:
            need(good is None, MISSING)
            return
        attest, signature, listed = elements(self.measured[0])
        pcrs = []
        for entry in elements(listed):
            bank, index, value = elements(entry)
            pcrs.append({"bank": integer(bank, MESSAGE)[0], "index": integer(index, MESSAGE)[0],
                         "value": base64.b64encode(tlv(value, 0x04, MESSAGE)[0]).decode()})
        values = {"attest": tlv(attest, 0x04, MESSAGE)[0], "signature": tlv(signature, 0x04, MESSAGE)[0], "akPublic": self.ak_public,
                  "qualifyingData": labelled(self.secret, b"nodeattest/tpm/v1 quote", self.binding)}
        quote = Quote({name: base64.b64encode(value).decode() for name, value in values.items()} | {"pcrs": pcrs})
        quote.verify()
        need(quote.attest.signer == statement.attest.signer and quote.attest.counts == statement.attest.counts, BOOT)
        for p in good or []:
            need(quote.value(p["bank"], p["index"]) == octets(p["value"]), POLICY)


def octets(text):
    return None if text is None else base64.b64decode(text, validate=True)


def disagreement(v, environment):
    """What is wrong with a vector; None where all is as it expects."""
    expect = v["expect"]
    if expect and expect not in CHECKS:
        return f"unknown expectation {expect!r}"
    alone = v["level"] in ("statement", "quote")
    if (expect == "") != (v["class"] == "accepted") or alone and "environment" in v:
        return "it contradicts its class or level"
    try:
        if alone:
            found = (Statement(v["statement"]) if v["level"] == "statement" else Quote(v["quote"])).verify()
        else:
            found = Answer(v, environment).verify()
    except Refused as e:
        return None if expect == str(e) else f"refused by {e}, want {expect or 'acceptance'}"
    if expect:
        return f"accepted, want {expect}"
    want = v.get("result") or {}
    if not alone:
        want = {name: value for name, value in want.items() if name == "tpmResident"}
    if any(name not in found or found[name] != value for name, value in want.items()):
        return f"found {found}, want {want}"
    return None


def ours(v, environment):
    """Whether the vector is about a statement: of the class, all but what the request's own policy refuses."""
    if v["level"] != "verify":
        return v["level"] in ("statement", "quote")
    return v["expect"] not in NODE_POLICY if v["class"] == "statement" else Answer(v, environment).road == 0


def main():
    if len(sys.argv) > 2:
        sys.exit("usage: replay_statements.py [FOLDER]")
    default = pathlib.Path(__file__).resolve().parent.parent / "data"
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else default
    counts, elsewhere, problems = {"accepted": 0, "statement": 0}, 0, []
    try:
        environment = json.loads((root / "environment.json").read_text())
    except (ValueError, OSError) as e:
        sys.exit(f"environment.json: {e}")
    for name in counts:
        for file in sorted((root / name).glob("*")):
            try:
                v = json.loads(file.read_text())
                if v["name"] + ".json" != file.name or v["class"] != name:
                    raise Broken("it calls itself " + v["class"] + "/" + v["name"])
                if not ours(v, environment):
                    elsewhere += name == "statement"
                    continue
                counts[name] += 1
                problem = disagreement(v, environment)
            except (Broken, LookupError, TypeError, ValueError, OSError) as e:
                problem = f"{type(e).__name__}: {e}"
            if problem:
                problems.append(f"{name}/{file.name}: {problem}")
        if not counts[name]:
            problems.append(f"{root / name}: no vector to replay")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{counts['statement']} refused and {counts['accepted']} accepted replayed, {len(problems)} disagreements; "
          f"{elsewhere} of the class are about the request alone")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
