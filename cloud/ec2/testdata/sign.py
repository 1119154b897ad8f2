"""Signs requests to STS with botocore: a JSON object a line, and a signature a line for it.

Each object has method, url (without what the signature adds), headers, region, date, and the
credentials: access, secret and token.
"""

import json
import sys

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

for line in sys.stdin:
    r = json.loads(line)
    auth = SigV4QueryAuth(Credentials(r["access"], r["secret"], r["token"]), "sts", r["region"], expires=900)
    request = AWSRequest(method=r["method"], url=r["url"], headers=r["headers"])
    # What add_auth does at the time of its own clock.
    request.context["timestamp"] = r["date"]
    auth._modify_request_before_signing(request)
    text = auth.string_to_sign(request, auth.canonical_request(request))
    print(auth.signature(text, request), flush=True)
