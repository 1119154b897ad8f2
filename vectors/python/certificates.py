"""X.509 certificates (RFC 5280), as far as the vectors need them."""

import calendar
import datetime

from signatures import CURVES, ECC, RSA, verify_ecdsa, verify_rsassa

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


def dotted(content):
    """An object identifier in dotted decimal."""
    arcs, arc = [], 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if byte < 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, [first, arcs[0] - 40 * first, *arcs[1:]]))


SIGNED_DATA, DATA = oid("2a864886f70d010702"), oid("2a864886f70d010701")
RSA_ENCRYPTION, SHA256_RSA, SHA256 = oid("2a864886f70d010101"), oid("2a864886f70d01010b"), oid("608648016503040201")
EC_KEY = oid("2a8648ce3d0201")
# The hash of each signature algorithm.
RSA_SIGNATURES = {SHA256_RSA: "sha256", oid("2a864886f70d01010c"): "sha384", oid("2a864886f70d01010d"): "sha512"}
ECDSA_SIGNATURES = {oid("2a8648ce3d040302"): "sha256", oid("2a8648ce3d040303"): "sha384", oid("2a8648ce3d040304"): "sha512"}
KEY_USAGE, SAN, CONSTRAINTS, EXT_USAGE = oid("551d0f"), oid("551d11"), oid("551d13"), oid("551d25")
INSTANCE = oid("2b06010401d679020115")
SUBJECT_ID, AUTHORITY_ID, COMMON_NAME = oid("551d0e"), oid("551d23"), oid("550403")


def read_key(info):
    """The key of a SubjectPublicKeyInfo, as signatures.py has keys; None for other keys."""
    algorithm = info.inside(0x30)
    kind = algorithm.element(0x06)[0]
    bits = info.element(0x03)[0][1:]
    if kind == RSA_ENCRYPTION:
        numbers = DER(bits).inside(0x30)
        return RSA, numbers.integer(), numbers.integer()
    for number, curve in CURVES.items():
        if kind == EC_KEY and algorithm.data == curve.oid and len(bits) == 1 + 2 * curve.width and bits[0] == 4:
            return ECC, number, int.from_bytes(bits[1:1 + curve.width], "big"), int.from_bytes(bits[1 + curve.width:], "big")
    return None


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
        self.key = read_key(body.inside(0x30))
        self.ca, self.path_length, self.usage, self.ext_usage, self.names, self.other_names = False, None, None, [], [], []
        self.subject_id = self.authority_id = self.instance = None
        if body.peek() == 0xA3:
            extensions = body.inside(0xA3).inside(0x30)
            while extensions.data:
                self.read_extension(extensions.inside(0x30))

    @staticmethod
    def time(validity):
        tag = validity.peek()
        text = validity.element(tag)[0].decode()
        return calendar.timegm(datetime.datetime.strptime(text, "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ").timetuple())

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
        elif name == INSTANCE and value.peek() == 0x30:
            inner = value.inside(0x30)
            zone, _, project, number = inner.element(0x0C)[0], inner.integer(), inner.element(0x0C)[0], inner.integer()
            self.instance = {"zone": zone.decode(), "project": project.decode(), "id": number, "name": inner.element(0x0C)[0].decode()}
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
                elif tag == 0xA0:
                    other = DER(content)
                    self.other_names.append((other.element(0x06)[0], other.element(0xA0)[0]))
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


def signed_by(c, issuer):
    return verifies(issuer.key, c.algorithm, c.signed, c.signature)


def verifies(key, algorithm, signed, signature):
    """Whether a signature of a certificate or a request is by a key."""
    if algorithm in RSA_SIGNATURES and key and key[0] == RSA:
        return verify_rsassa(key, RSA_SIGNATURES[algorithm], signed, signature)
    if algorithm in ECDSA_SIGNATURES and key and key[0] == ECC:
        numbers = DER(signature).inside(0x30)
        return verify_ecdsa(key, ECDSA_SIGNATURES[algorithm], signed, numbers.integer(), numbers.integer())
    return False
