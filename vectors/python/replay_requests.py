#!/usr/bin/env python3
"""Replays the test vectors of instances that sign a request, without any code of the SDK: ec2.

    replay_requests.py [FOLDER]

FOLDER is that of replay_documents.py, which reads and verifies the identity documents. The
Security Token Service is imitated: it has the sessions of the environment, and makes each
signature itself (Signature Version 4, by Python's standard library).
"""

import calendar
import datetime
import hashlib
import hmac
import re
import sys
import urllib.parse

sys.dont_write_bytecode = True  # no folder next to the vectors

from replay_documents import Refused, check, main, parse_identity_document, verify_identity_document

HEADER = "x-nodeattest-qualifying-data"
SUFFIXES = {"aws": "amazonaws.com", "aws-cn": "amazonaws.com.cn", "aws-us-gov": "amazonaws.com", "aws-eusc": "amazonaws.eu"}
REGIONS = """af-south-1 ap-east-1 ap-east-2 ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-south-2 ap-southeast-1
    ap-southeast-2 ap-southeast-3 ap-southeast-4 ap-southeast-5 ap-southeast-6 ap-southeast-7 ca-central-1 ca-west-1 eu-central-1
    eu-central-2 eu-north-1 eu-south-1 eu-south-2 eu-west-1 eu-west-2 eu-west-3 il-central-1 me-central-1 me-south-1 mx-central-1
    sa-east-1 us-east-1 us-east-2 us-west-1 us-west-2 cn-north-1 cn-northwest-1 eusc-de-east-1 us-gov-east-1 us-gov-west-1""".split()
PARAMETERS = ["Action", "Version", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token",
              "X-Amz-Signature", "X-Amz-SignedHeaders"]
FIXED = {"Action": "GetCallerIdentity", "Version": "2011-06-15", "X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Expires": "900"}
GOOD_FOR = 15 * 60


def take(data, tag):
    """One element of DER: its content, and what follows."""
    check(len(data) >= 2 and data[0] == tag, "ec2-encoding")
    length, start = data[1], 2
    if length >= 0x80:
        count = length & 0x7F
        check(1 <= count <= 4 and len(data) >= 2 + count, "ec2-encoding")
        length, start = int.from_bytes(data[2:2 + count], "big"), 2 + count
        check(length >= 0x80 and length >> (8 * (count - 1)), "ec2-encoding")
    check(len(data) >= start + length, "ec2-encoding")
    return data[start:start + length], data[start + length:]


def take_text(data, most):
    text, rest = take(data, 0x0C)
    check(len(text) <= most and all(0x20 <= c <= 0x7E for c in text), "ec2-encoding")
    return text.decode(), rest


def parse_evidence(data):
    body, rest = take(data, 0x30)
    check(not rest, "ec2-encoding")
    document, body = take(body, 0x04)
    check(0 < len(document) <= 8192, "ec2-encoding")
    method, body = take_text(body, 16)
    url, body = take_text(body, 8192)
    listed, rest = take(body, 0x30)
    check(not rest, "ec2-encoding")
    headers = []
    while listed:
        check(len(headers) < 4, "ec2-encoding")
        one, listed = take(listed, 0x30)
        name, one = take_text(one, 64)
        value, one = take_text(one, 256)
        check(not one, "ec2-encoding")
        headers.append((name, value))
    return document, method, url, headers


def partition_of(region):
    for start, partition in (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov"), ("eusc-", "aws-eusc")):
        if region.startswith(start):
            return partition
    return "aws"


def quote(text):
    return urllib.parse.quote(text, safe="-_.~")


def time_of(text):
    try:
        at = datetime.datetime.strptime(text, "%Y%m%dT%H%M%SZ")
    except ValueError:
        raise Refused("ec2-request-query")
    check(at.strftime("%Y%m%dT%H%M%SZ") == text, "ec2-request-query")
    return calendar.timegm(at.timetuple())


def read_request(method, url, headers, region, host):
    """The parameters of the one request that is meant, and the header's value."""
    check(method == "GET", "ec2-request-method")
    place, _, query = url.partition("?")
    scheme, _, rest = place.partition("://")
    check(scheme == "https" and rest.partition("/")[0] == host, "ec2-request-host")
    check(place == "https://" + host + "/", "ec2-request-path")
    q = {}
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        bad = re.search(r"%(?![0-9A-Fa-f]{2})", value)
        check(name in PARAMETERS and name not in q and not bad, "ec2-request-query")
        q[name] = urllib.parse.unquote_plus(value, errors="surrogateescape")
    check(len(q) == len(PARAMETERS), "ec2-request-query")
    check([name for name, _ in headers] == [HEADER], "ec2-request-headers")
    check(q["X-Amz-SignedHeaders"] == "host;" + HEADER, "ec2-request-signed-headers")
    value = headers[0][1]
    check(re.fullmatch(r"[0-9a-f]{64}", value), "ec2-request-value")
    time_of(q["X-Amz-Date"])
    key, ours, end = q["X-Amz-Credential"].partition("/" + q["X-Amz-Date"][:8] + "/" + region + "/sts/aws4_request")
    check(ours and not end, "ec2-request-credential")
    check(re.fullmatch(r"[A-Z0-9]{16,128}", key), "ec2-request-query")
    check(re.fullmatch(r"[A-Za-z0-9+/=_-]+", q["X-Amz-Security-Token"]), "ec2-request-query")
    check(re.fullmatch(r"[0-9a-f]{64}", q["X-Amz-Signature"]), "ec2-request-query")
    check(all(q[name] == fixed for name, fixed in FIXED.items()), "ec2-request-query")
    check(query == "&".join(name + "=" + quote(q[name]) for name in PARAMETERS), "ec2-request-query")
    return q, value


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def sign(secret, q, host, region, value):
    """The signature of a request by its parameters ("Create a signed AWS API request", IAM User Guide)."""
    query = "&".join(quote(name) + "=" + quote(q[name]) for name in sorted(q) if name != "X-Amz-Signature")
    nothing = hashlib.sha256(b"").hexdigest()
    canonical = "\n".join(["GET", "/", query, "host:" + host, HEADER + ":" + value, "", "host;" + HEADER, nothing])
    day = q["X-Amz-Date"][:8]
    key = ("AWS4" + secret).encode()
    for part in (day, region, "sts", "aws4_request"):
        key = mac(key, part)
    scope = f"{day}/{region}/sts/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", q["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    return mac(key, text).hex()


def get_caller_identity(q, host, region, value, sessions):
    for s in sessions.values():
        if s["sessionToken"] == q["X-Amz-Security-Token"] and q["X-Amz-Credential"].startswith(s["accessKeyID"] + "/"):
            check(sign(s["secretAccessKey"], q, host, region, value) == q["X-Amz-Signature"], "ec2-sts-refused")
            return s["arn"]
    raise Refused("ec2-sts-refused")


def verify_ec2(evidence, now, env):
    document, method, url, headers = parse_evidence(evidence)
    d, signed = parse_identity_document(document)
    region, account = d["region"], d["accountId"]
    check(region in REGIONS, "ec2-region")
    partition = partition_of(region)
    host = f"sts.{region}.{SUFFIXES[partition]}"
    roles = [re.fullmatch(r"arn:([a-z-]+):iam::([0-9]{12}):role/(?:.*/)?([^/]+)", arn).groups() for arn in env["roles"]]
    check(partition in [r[0] for r in roles], "ec2-partition")
    check((partition, account) in [r[:2] for r in roles], "ec2-account")
    q, value = read_request(method, url, headers, region, host)
    check(abs(now - time_of(q["X-Amz-Date"])) < GOOD_FOR, "ec2-request-time")
    verify_identity_document(d, signed, now, env)
    arn = get_caller_identity(q, host, region, value, env["sessions"])
    caller = re.fullmatch(r"arn:([a-z-]+):sts::([0-9]{12}):assumed-role/([\w+=,.@-]{1,64})/([\w+=,.@-]{1,64})", arn, re.ASCII)
    check(caller, "ec2-arn")
    check(caller[1] == partition, "ec2-partition")
    check(caller[2] == account, "ec2-account")
    check(caller.groups()[:3] in roles, "ec2-role")
    check(caller[4] == d["instanceId"], "ec2-session")
    return f"aws:{partition}/{region}/{d['instanceId']}"


if __name__ == "__main__":
    main({"ec2": verify_ec2})
