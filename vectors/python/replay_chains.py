#!/usr/bin/env python3
"""Replays the test vectors of documents that bring certificates along: azure and nitro.

    replay_chains.py [FOLDER]

As replay_documents.py, beside which it stands: no code of the SDK, Python's standard library alone.
PKCS #7 (RFC 5652), X.509 (RFC 5280), COSE_Sign1 (RFC 9052) and CBOR (RFC 8949) are read
here, and RSA and ECDSA signatures are verified with integers.
"""

import base64
import calendar
import datetime
import hashlib
import re
import sys

sys.dont_write_bytecode = True  # no folder beside the vectors

from replay_documents import Refused, check, main, read_json, verify_rsa

# DER. What is wrong is a Fault; who reads says which check that is.


class Fault(Exception):
    """Something that is not of the form."""


def need(ok):
    if not ok:
        raise Fault


class DER:
    def __init__(self, data):
        self.data = data

    def element(self, tag=None):
        """The next element of this tag, or of any: its content, and the whole."""
        d = self.data
        need(len(d) >= 2 and (tag is None or d[0] == tag) and d[0] & 0x1F != 0x1F)
        length, start = d[1], 2
        if length >= 0x80:
            count = length & 0x7F
            need(1 <= count <= 4 and len(d) >= 2 + count)
            length, start = int.from_bytes(d[2:2 + count], "big"), 2 + count
            need(length >= 0x80 and length >> (8 * (count - 1)))
        need(len(d) >= start + length)
        self.data = d[start + length:]
        return d[start:start + length], d[:start + length]

    def inside(self, tag):
        return DER(self.element(tag)[0])

    def peek(self):
        return self.data[0] if self.data else None

    def integer(self):
        content = self.element(0x02)[0]
        need(content and not (len(content) > 1 and (content[0] == 0 and content[1] < 0x80 or content[0] == 0xFF and content[1] >= 0x80)))
        return int.from_bytes(content, "big", signed=True)

    def end(self):
        need(not self.data)


def oid(text):
    return bytes.fromhex(text)


SIGNED_DATA, DATA = oid("2a864886f70d010702"), oid("2a864886f70d010701")
RSA, SHA256_RSA, SHA256 = oid("2a864886f70d010101"), oid("2a864886f70d01010b"), oid("608648016503040201")
EC, P384 = oid("2a8648ce3d0201"), oid("2b81040022")
ECDSA_SHA384 = oid("2a8648ce3d040303")
KEY_USAGE, SAN, CONSTRAINTS, EXT_USAGE = oid("551d0f"), oid("551d11"), oid("551d13"), oid("551d25")
SUBJECT_ID, AUTHORITY_ID, COMMON_NAME = oid("551d0e"), oid("551d23"), oid("550403")
SERVER_AUTH, ANY_USAGE = oid("2b06010505070301"), oid("551d2500")


class Certificate:
    """What is looked at of an X.509 certificate."""

    def __init__(self, der):
        outer = DER(der)
        whole = outer.inside(0x30)
        outer.end()
        body, self.signed = whole.element(0x30)
        self.algorithm = whole.inside(0x30).element(0x06)[0]
        self.signature = whole.element(0x03)[0][1:]
        whole.end()
        self.raw = der
        body = DER(body)
        body.element(0xA0)
        self.serial = body.integer()
        body.element(0x30)
        self.issuer = body.element(0x30)[1]
        validity = body.inside(0x30)
        self.begins, self.ends = self.time(validity), self.time(validity)
        self.subject = body.element(0x30)[1]
        self.read_key(body.inside(0x30))
        self.ca, self.path_length, self.usage, self.ext_usage, self.names = False, None, None, [], []
        self.subject_id = self.authority_id = None
        if body.peek() == 0xA3:
            extensions = body.inside(0xA3).inside(0x30)
            while extensions.data:
                self.read_extension(extensions.inside(0x30))

    @staticmethod
    def time(validity):
        tag = validity.peek()
        text = validity.element(tag)[0].decode()
        return calendar.timegm(datetime.datetime.strptime(text, "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ").timetuple())

    def read_key(self, info):
        algorithm = info.inside(0x30)
        kind = algorithm.element(0x06)[0]
        bits = info.element(0x03)[0][1:]
        self.rsa = self.point = None
        if kind == RSA:
            numbers = DER(bits).inside(0x30)
            self.rsa = (numbers.integer(), numbers.integer())
        elif kind == EC and algorithm.element(0x06)[0] == P384 and len(bits) == 97 and bits[0] == 4:
            self.point = (int.from_bytes(bits[1:49], "big"), int.from_bytes(bits[49:], "big"))

    def read_extension(self, extension):
        name = extension.element(0x06)[0]
        if extension.peek() == 0x01:
            extension.element(0x01)
        value = DER(extension.element(0x04)[0])
        if name == CONSTRAINTS:
            inner = value.inside(0x30)
            if inner.peek() == 0x01:
                self.ca = inner.element(0x01)[0] == b"\xff"
            if inner.data:
                self.path_length = inner.integer()
        elif name == KEY_USAGE:
            content = value.element(0x03)[0]
            self.usage = content[1] if len(content) > 1 else 0
        elif name == EXT_USAGE:
            inner = value.inside(0x30)
            while inner.data:
                self.ext_usage.append(inner.element(0x06)[0])
        elif name == SAN:
            inner = value.inside(0x30)
            while inner.data:
                tag = inner.peek()
                content = inner.element(tag)[0]
                if tag == 0x82:
                    self.names.append(content.decode("ascii").lower())
        elif name == SUBJECT_ID:
            self.subject_id = value.element(0x04)[0]
        elif name == AUTHORITY_ID:
            inner = value.inside(0x30)
            if inner.peek() == 0x80:
                self.authority_id = inner.element(0x80)[0]

    def common_name(self, name):
        parts, found = DER(name).inside(0x30), ""
        while parts.data:
            pair = parts.inside(0x31).inside(0x30)
            if pair.element(0x06)[0] == COMMON_NAME:
                found = pair.element()[0].decode()
        return found


DIGITAL_SIGNATURE, CERT_SIGN = 0x80, 0x04


# ECDSA on P-384 (FIPS 186-5, SEC 2), with integers.

P = 2**384 - 2**128 - 2**96 + 2**32 - 1
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973
B = 0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF
G = (0xAA87CA22BE8B05378EB1C71EF320AD746E1D3B628BA79B9859F741E082542A385502F25DBF55296C3A545E3872760AB7,
     0x3617DE4A96262C6F5D9E98BF9292DC29F8F41DBD289A147CE9DA3113B5F0B8C00A60B1CE1D7E819D7A431D7C90EA0E5F)


def add(a, b):
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % P == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P)
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def times(k, point):
    total = None
    for bit in bin(k)[2:]:
        total = add(total, total)
        if bit == "1":
            total = add(total, point)
    return total


def verify_ecdsa(point, message, r, s):
    x, y = point
    if (y * y - x * x * x + 3 * x - B) % P or not (0 < r < N and 0 < s < N):
        return False
    w = pow(s, -1, N)
    sum_ = add(times(int.from_bytes(hashlib.sha384(message).digest(), "big") * w % N, G), times(r * w % N, point))
    return sum_ is not None and sum_[0] % N == r


# Chains.


def check_time(c, now):
    check(now <= c.ends, "document-certificate-expired")
    check(now >= c.begins, "document-certificate-not-yet-valid")


def signed_by(c, issuer):
    if c.algorithm == SHA256_RSA and issuer.rsa:
        return verify_rsa(*issuer.rsa, c.signed, c.signature)
    if c.algorithm == ECDSA_SHA384 and issuer.point:
        numbers = DER(c.signature).inside(0x30)
        return verify_ecdsa(issuer.point, c.signed, numbers.integer(), numbers.integer())
    return False


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
    check(is_algorithm(algorithm, RSA) or is_algorithm(algorithm, SHA256_RSA), "azure-document-algorithm")
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
    check(leaf.rsa and 2048 <= leaf.rsa[0].bit_length() <= 4096, "azure-certificate")
    check(not leaf.ca and (leaf.usage is None or leaf.usage & DIGITAL_SIGNATURE), "azure-certificate")
    check(SERVER_AUTH in leaf.ext_usage or ANY_USAGE in leaf.ext_usage, "azure-certificate")
    verify_chain(found[0], now, SERVER_AUTH)
    check(created - 60 <= now <= expires, "azure-document-time")
    check(verify_rsa(*leaf.rsa, content, signature), "azure-document-signature")
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
    check(leaf.point and not leaf.ca and (leaf.usage or 0) & DIGITAL_SIGNATURE, "nitro-certificate")
    check(all(c.point for c in path[:-1]), "nitro-certificate")
    at = leaf.begins if now < leaf.begins <= now + 60 else now  # their clock may be ahead
    check_time(leaf, at)
    made = d["timestamp"] // 1000
    check(made <= now + 60 and leaf.begins <= made <= leaf.ends, "nitro-document-time")
    verify_chain(path, at)
    signed = b"\x84\x6aSignature1\x44" + ES384 + b"\x40" + string_head(len(payload)) + payload
    check(verify_ecdsa(leaf.point, signed, int.from_bytes(signature[:48], "big"), int.from_bytes(signature[48:], "big")), "nitro-document-signature")
    check(len(d.get("nonce") or b"") == 32, "nitro-document-nonce")
    check(d.get("user_data") == b"nodeattest/nitro/v1" and d.get("public_key") is None, "nitro-document-user-data")
    for index, value in env["pcrs"].items():
        check(d["nitrotpm_pcrs"].get(int(index)) == base64.b64decode(value), "nitro-pcrs")
    return "aws:" + ("aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws") + "/" + region + "/" + instance


KINDS = {"azure": verify_azure, "nitro": verify_nitro}


if __name__ == "__main__":
    main(KINDS)
