"""Statements of TPM2_Certify and TPM2_Quote, by docs/protocol.md and no code of the SDK."""

import base64
import hashlib

from signatures import RSA
from structures import (
    CERTIFY, DECRYPT, ENCRYPTED_DUPLICATION, FIXED_PARENT, FIXED_TPM, HASHES, NAME_ALGORITHM, QUOTE, RESTRICTED, SIGN, SIGNATURE_SCHEME, TYPE,
    X509_SIGN, Attest, Broken, Public, Refused, Signature, algorithm, is_name, need, octets, rsa_strength, spki_key)

CERTIFY_OPTIONS, QUALIFYING_DATA, SIGNATURE_HASH = "certify-options", "qualifying-data", "signature-hash"
NAME, QUALIFIED_NAME = "certified-name", "certified-qualified-name"
SIGNER, KEY_MISMATCH = "qualified-signer", "key-mismatch"
AK_IS_KEY, AK_MISMATCH = "ak-is-certified-key", "ak-mismatch"
QUOTE_OPTIONS, SELECTION, BANK = "quote-options", "pcr-selection", "pcr-bank"
PCR_VALUE, PCR_DUPLICATE, PCR_MISSING = "pcr-value", "pcr-duplicate", "pcr-missing"
NOT_QUOTED, RESETTABLE, PCR_DIGEST = "pcr-not-quoted", "pcr-resettable", "pcr-digest"
KEY_ATTRIBUTES, CLAIM, RESIDENCY = "key-attributes", "key-residency-claim", "key-residency"

OPTIONS = {
    "requireTPMResident", "allowDecryptionKey", "allowRestrictedKey", "insecureAllowAnyQualifyingData",
    "insecureEmptyQualifyingData", "insecureAllowAnyKey", "insecureAllowSHA1Signature", "insecureAllowSHA1Name",
}


class Signed:
    """What every statement of an AK is held against: attest, signature, ak (None for a bare key), ak_key, options."""

    def caller(self, s, public, key, data, refusal):
        """The caller's AK and qualifying data; expected is None where any will do."""
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
    """A quote with its PCR values, as the vectors have it."""

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
