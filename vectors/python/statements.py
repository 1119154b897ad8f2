"""Statements of TPM2_Certify and TPM2_Quote, by docs/protocol.md and no code of the SDK.

The structures are those of TPM 2.0 Library, Part 2: TPMS_ATTEST (10.12.12), TPMT_PUBLIC
(12.2.4), TPMT_SIGNATURE (11.3.4). replay_join.py replays the vectors.
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

FIXED_TPM, ST_CLEAR, FIXED_PARENT, ORIGIN = 1 << 1, 1 << 2, 1 << 4, 1 << 5
ENCRYPTED_DUPLICATION, RESTRICTED, DECRYPT, SIGN, X509_SIGN = 1 << 11, 1 << 16, 1 << 17, 1 << 18, 1 << 19
ATTRIBUTES = 0x000F0FF6  # the bits that have a meaning

RSA_ALGORITHM = bytes.fromhex("300d06092a864886f70d0101010500")
EC_ALGORITHM = bytes.fromhex("06072a8648ce3d0201")

class Refused(Exception):
    pass


class Broken(Exception):
    """The vector itself is at fault."""


CERTIFY_OPTIONS = "certify-options"
ATTEST_SIZE, ATTEST_ENCODING = "attest-size", "attest-encoding"
MAGIC, TYPE = "attest-magic", "attest-type"
PUBLIC_SIZE, PUBLIC_ENCODING, KEY_TYPE = "public-size", "public-encoding", "tpm-key-type"
NAME_ALGORITHM, WEAK, POINT = "name-algorithm", "tpm-key-strength", "key-point"
SIGNATURE_SIZE, SIGNATURE_ENCODING = "tpm-signature-size", "signature-encoding"
SIGNATURE_SCHEME, SIGNATURE_HASH = "signature-scheme", "signature-hash"
SIGNATURE_LENGTH, SIGNATURE_RANGE = "signature-length", "signature-range"
SIGNATURE, QUALIFYING_DATA = "tpm-signature", "qualifying-data"
NAME, QUALIFIED_NAME = "certified-name", "certified-qualified-name"
SIGNER, KEY_MISMATCH = "qualified-signer", "key-mismatch"
AK_IS_KEY, AK_MISMATCH = "ak-is-certified-key", "ak-mismatch"
AK_ATTRIBUTES, AK_SCHEME = "ak-attributes", "ak-scheme"
QUOTE_OPTIONS, SELECTION, BANK = "quote-options", "pcr-selection", "pcr-bank"
PCR_VALUE, PCR_DUPLICATE, PCR_MISSING = "pcr-value", "pcr-duplicate", "pcr-missing"
NOT_QUOTED, RESETTABLE, PCR_DIGEST = "pcr-not-quoted", "pcr-resettable", "pcr-digest"
KEY_ATTRIBUTES, CLAIM, RESIDENCY = "key-attributes", "key-residency-claim", "key-residency"


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
        self.ak.check_signs_statements()

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

    def check_signature(self):
        self.signature.verify(self.ak_key, self.attest.raw)

    def verify(self):
        """Refuses, or returns what was found."""
        self.check()
        self.check_signature()
        return self.found()


class Statement(Signed):
    """A certify statement, parsed, with what it is held against, as the vectors have it."""

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

    def found(self):
        return {"tpmResident": self.trusted and self.resident()}

    def check(self):
        """All but the signature."""
        need(self.attest.type == CERTIFY, TYPE)
        need(self.expected is None or self.attest.extra == self.expected, QUALIFYING_DATA)
        self.check_key()
        self.check_ak()
        self.check_signer()
        self.check_attributes()
        self.check_residency()
        self.check_signature_form()

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
    """A quote with the values beside it, as the vectors have it."""

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

    def check(self):
        """All but the signature."""
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

    def found(self):
        found = {"clockTrusted": self.trusted and self.ak is not None and self.attest.signer == primary_name(self.ak)}
        if self.asked is not None:
            found["value"] = base64.b64encode(self.value(self.asked["bank"], self.asked["index"])).decode()
        return found

    def value(self, bank, index):
        need(index not in (16, 23), RESETTABLE)
        need((bank, index) in self.values, NOT_QUOTED)
        return self.values[bank, index]


def primary_name(ak, hierarchy=bytes.fromhex("4000000b")):
    """The qualified name of a primary key of a hierarchy: that of endorsement, unless it is given."""
    return ak.names()[0][:2] + hashlib.new(HASHES[ak.name_alg], hierarchy + ak.names()[0]).digest()


def octets(text):
    return None if text is None else base64.b64decode(text, validate=True)
