#!/usr/bin/env python3
"""Replays the test vectors of documents that bring certificates along: azure and nitro.

    replay_chains.py [FOLDER]

As replay_documents.py: no code of the SDK, Python's standard library alone.
PKCS #7 (RFC 5652), COSE_Sign1 (RFC 9052) and CBOR (RFC 8949) are read here, X.509 in
certificates.py.
"""

import base64
import calendar
import datetime
import re
import sys

sys.dont_write_bytecode = True  # no folder next to the vectors

from certificates import DATA, DER, RSA_ENCRYPTION, SHA256, SHA256_RSA, SIGNED_DATA, Certificate, Fault, need, oid, signed_by
from replay_documents import Refused, check, main, read_json
from signatures import ECC, RSA, verify_ecdsa, verify_rsassa

SERVER_AUTH, ANY_USAGE = oid("2b06010505070301"), oid("551d2500")
DIGITAL_SIGNATURE, CERT_SIGN = 0x80, 0x04


# Chains.


def check_time(c, now):
    check(now <= c.ends, "document-certificate-expired")
    check(now >= c.begins, "document-certificate-not-yet-valid")


def verify_chain(path, now, usage=None):
    check(2 <= len(path) <= 6, "document-certificate-chain")
    for c in path:
        check_time(c, now)
    for below, (c, issuer) in enumerate(zip(path, path[1:])):
        check(c.issuer == issuer.subject and signed_by(c, issuer), "document-certificate-chain")
        check(issuer.ca and (issuer.usage is None or issuer.usage & CERT_SIGN), "document-certificate-chain")
        check(issuer.path_length is None or below <= issuer.path_length, "document-certificate-chain")
        if usage and issuer.ext_usage:
            check(usage in issuer.ext_usage or ANY_USAGE in issuer.ext_usage, "document-certificate-chain")


def issued(c, issuer):
    return issuer.ca and c.issuer == issuer.subject and (None in (c.authority_id, issuer.subject_id) or c.authority_id == issuer.subject_id)


def paths(path, roots, intermediates):
    """Every chain to a root that the names allow."""
    for root in roots:
        if issued(path[-1], root):
            yield path + [root]
    if len(path) <= 5:
        for c in intermediates:
            if issued(path[-1], c) and c not in path:
                yield from paths(path + [c], roots, intermediates)


# Attested documents of Azure.


def is_algorithm(element, name):
    return element == b"\x30" + bytes([len(name) + 4]) + b"\x06" + bytes([len(name)]) + name + b"\x05\x00"


def one(container, tag, name):
    """The one element of a SET or list."""
    try:
        content, whole = container.element(tag)
        container.end()
    except Fault:
        raise Refused(name)
    return content, whole


def parse_azure(document):
    outer = DER(document)
    info = outer.inside(0x30)
    outer.end()
    need(info.element(0x06)[0] == SIGNED_DATA)
    wrapped = info.inside(0xA0)
    info.end()
    body = wrapped.inside(0x30)
    wrapped.end()
    need(body.integer() == 1)
    digest = one(body.inside(0x31), 0x30, "azure-document-signers")[1]
    inner = body.inside(0x30)
    need(inner.element(0x06)[0] == DATA)
    wrapped = inner.inside(0xA0)
    inner.end()
    content = wrapped.element(0x04)[0]
    wrapped.end()
    check(body.peek() == 0xA0, "azure-document-signers")
    certificate = one(body.inside(0xA0), 0x30, "azure-document-signers")[1]
    signers = body.inside(0x31)
    body.end()
    signer = DER(one(signers, 0x30, "azure-document-signers")[0])
    need(signer.integer() == 1)
    who = signer.inside(0x30)
    issuer, serial = who.element(0x30)[1], who.integer()
    who.end()
    again = signer.element(0x30)[1]
    check(again == digest and (is_algorithm(digest, SHA256_RSA) or is_algorithm(digest, SHA256)), "azure-document-algorithm")
    check(signer.peek() != 0xA0, "azure-document-attributes")
    algorithm = signer.element(0x30)[1]
    check(is_algorithm(algorithm, RSA_ENCRYPTION) or is_algorithm(algorithm, SHA256_RSA), "azure-document-algorithm")
    signature = signer.element(0x04)[0]
    check(signer.peek() != 0xA1, "azure-document-attributes")
    signer.end()
    return content, certificate, issuer, serial, signature


def azure_time(text):
    need(isinstance(text, str) and re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d -0000", text))
    return calendar.timegm(datetime.datetime.strptime(text[:-6], "%m/%d/%y %H:%M:%S").timetuple())


def azure_content(content):
    d = read_json(content)
    stamp = d.get("timeStamp", {})
    need(isinstance(stamp, dict))
    texts = [d.get(name, "") for name in ("vmId", "subscriptionId", "nonce")]
    need(all(isinstance(text, str) and len(text) <= 64 for text in texts))
    return texts[0].lower(), texts[1].lower(), texts[2], azure_time(stamp.get("createdOn")), azure_time(stamp.get("expiresOn"))


UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def base62(text):
    value = 0
    for digit in text:
        value = 62 * value + "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ".index(digit)
    return value


def verify_azure(document, now, env):
    check(len(document) <= 16384, "azure-document-encoding")
    try:
        content, certificate, issuer, serial, signature = parse_azure(document)
        check(len(content) <= 4096, "azure-document-encoding")
        vm, subscription, nonce, created, expires = azure_content(content)
        leaf = Certificate(certificate)
    except (Fault, ValueError):
        raise Refused("azure-document-encoding")
    check(leaf.issuer == issuer and leaf.serial == serial, "azure-document-signers")
    certificates = {name: [Certificate(base64.b64decode(c)) for c in env[name]] for name in ("roots", "intermediates")}
    found = list(paths([leaf], certificates["roots"], certificates["intermediates"]))
    check(found, "document-certificate-chain")
    check_time(leaf, now)
    names = [name for name in leaf.names if "" not in name.split(".")]
    check(any(name == d or name.endswith("." + d) for name in names for d in env["domains"]), "azure-certificate-name")
    check(leaf.key and leaf.key[0] == RSA and 2048 <= leaf.key[1].bit_length() <= 4096, "azure-certificate")
    check(not leaf.ca and (leaf.usage is None or leaf.usage & DIGITAL_SIGNATURE), "azure-certificate")
    check(SERVER_AUTH in leaf.ext_usage or ANY_USAGE in leaf.ext_usage, "azure-certificate")
    verify_chain(found[0], now, SERVER_AUTH)
    check(created - 60 <= now <= expires, "azure-document-time")
    check(verify_rsassa(leaf.key, "sha256", content, signature), "azure-document-signature")
    check(re.fullmatch(UUID, vm) and re.fullmatch(UUID, subscription), "machine-identity")
    check(subscription in env["subscriptions"], "azure-subscription")
    check(re.fullmatch(r"nodeattest[0-9a-zA-Z]{22}", nonce) and base62(nonce[10:]) < 1 << 128, "azure-document-nonce")
    return "azure:" + subscription + "/" + vm


# Attestation documents of NitroTPMs.


class CBOR:
    def __init__(self, data):
        self.data = data

    def byte(self, value):
        """Takes the byte if it is the next one."""
        if self.data[:1] == bytes([value]):
            self.data = self.data[1:]
            return True
        return False

    def head(self, major):
        d = self.data
        need(d and d[0] >> 5 == major and d[0] & 31 <= 27)
        info = d[0] & 31
        if info < 24:
            self.data = d[1:]
            return info
        size = 1 << (info - 24)
        need(len(d) > size)
        n = int.from_bytes(d[1:1 + size], "big")
        need(n >= 24 if size == 1 else n >> (4 * size))
        self.data = d[1 + size:]
        return n

    def number(self, most):
        n = self.head(0)
        need(n <= most)
        return n

    def string(self, major, least, most):
        n = self.head(major)
        need(least <= n <= most and n <= len(self.data))
        s, self.data = self.data[:n], self.data[n:]
        return s

    def bytes(self, least=1, most=1024):
        return self.string(2, least, most)

    def text(self, most):
        return self.string(3, 1, most).decode("utf-8")

    def optional(self):
        return None if self.byte(0xF6) else self.bytes(0)

    def count(self, major, least, most):
        n = self.head(major)
        need(least <= n <= most)
        return n

    def end(self):
        need(not self.data)


ES384 = b"\xa1\x01\x38\x22"


def read_pcrs(r):
    values = {}
    for _ in range(r.count(5, 1, 32)):
        index, value = r.number(31), r.bytes(48, 48)
        need(index not in values)
        values[index] = value
    return values


def read_digest(r):
    check(r.text(16) == "SHA384", "nitro-document-algorithm")


MEMBERS = {
    "module_id": lambda r: r.text(128), "digest": read_digest, "timestamp": lambda r: r.number(253402300799999),
    "certificate": CBOR.bytes, "cabundle": lambda r: [r.bytes() for _ in range(r.count(4, 1, 5))],
    "public_key": CBOR.optional, "user_data": CBOR.optional, "nonce": CBOR.optional, "nitrotpm_pcrs": read_pcrs, "pcrs": read_pcrs,
}


def read_payload(payload):
    r, d = CBOR(payload), {}
    endless = r.byte(0xBF)
    left = 0 if endless else r.count(5, 1, len(MEMBERS))
    while left > 0 or endless and not r.byte(0xFF):
        left -= 1
        key = r.text(32)
        need(key in MEMBERS and key not in d)
        d[key] = MEMBERS[key](r)
    r.end()
    need({"module_id", "digest", "timestamp", "certificate", "cabundle"} <= d.keys())
    need(("pcrs" in d) != ("nitrotpm_pcrs" in d))
    return d


def read_sign1(document):
    r = CBOR(document)
    r.count(4, 4, 4)
    check(r.bytes(0, 16384) == ES384, "nitro-document-algorithm")
    check(r.byte(0xA0), "nitro-document-algorithm")
    payload, signature = r.bytes(1, 16384), r.bytes(96, 96)
    r.end()
    return payload, signature


def on_p384(c):
    return c.key and c.key[:2] == (ECC, 0x0004)


def string_head(n):
    return bytes([0x40 | n]) if n < 24 else bytes([0x58, n]) if n < 256 else b"\x59" + n.to_bytes(2, "big")


def verify_nitro(document, now, env):
    check(len(document) <= 16384, "nitro-document-encoding")
    try:
        payload, signature = read_sign1(document)
        d = read_payload(payload)
        leaf = Certificate(d["certificate"])
    except (Fault, ValueError):
        raise Refused("nitro-document-encoding")
    module, name = d["module_id"], leaf.common_name(leaf.subject)
    instance = re.match(r"(i-([0-9a-f]{17}|[0-9a-f]{8}))-", module)
    check(instance and name.startswith(module + ".") and name.endswith(".aws"), "nitro-module")
    instance, region = instance[1], name[len(module) + 1:-4]
    check(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", region), "nitro-module")
    check(leaf.common_name(leaf.issuer) == instance + "." + region + ".aws.nitro-enclaves", "nitro-module")
    check("pcrs" not in d, "nitro-document-kind")
    check(re.fullmatch(re.escape(instance) + r"-tpm[0-9a-f]{16}", module), "nitro-module")
    bundle = d["cabundle"]
    check(bundle[0] in map(base64.b64decode, env["roots"]), "document-certificate-chain")
    try:
        path = [leaf] + [Certificate(c) for c in reversed(bundle)]
    except (Fault, ValueError):
        raise Refused("nitro-document-encoding")
    check(on_p384(leaf) and not leaf.ca and (leaf.usage or 0) & DIGITAL_SIGNATURE, "nitro-certificate")
    check(all(map(on_p384, path[:-1])), "nitro-certificate")
    at = leaf.begins if now < leaf.begins <= now + 60 else now  # their clock may be ahead
    check_time(leaf, at)
    made = d["timestamp"] // 1000
    check(made <= now + 60 and leaf.begins <= made <= leaf.ends, "nitro-document-time")
    verify_chain(path, at)
    signed = b"\x84\x6aSignature1\x44" + ES384 + b"\x40" + string_head(len(payload)) + payload
    r, s = int.from_bytes(signature[:48], "big"), int.from_bytes(signature[48:], "big")
    check(verify_ecdsa(leaf.key, "sha384", signed, r, s), "nitro-document-signature")
    check(len(d.get("nonce") or b"") == 32, "nitro-document-nonce")
    check(d.get("user_data") == b"nodeattest/nitro/v1" and d.get("public_key") is None, "nitro-document-user-data")
    for index, value in env["pcrs"].items():
        check(d["nitrotpm_pcrs"].get(int(index)) == base64.b64decode(value), "nitro-pcrs")
    return "aws:" + ("aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws") + "/" + region + "/" + instance


KINDS = {"azure": verify_azure, "nitro": verify_nitro}


if __name__ == "__main__":
    main(KINDS)
