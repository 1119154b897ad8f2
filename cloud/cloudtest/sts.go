package cloudtest

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// session is the credentials of a principal with a role, for six hours. The secret is made of the token
// with the cloud's key, so the cloud need not remember it.
type session struct{ accessKeyID, secret, token string }

// session makes the credentials of a machine's role: a token with the ARN and the end, and a
// secret that only the cloud can make of it.
func (e *EC2) session(m EC2Machine) session {
	end := clock(e.Now).Add(6 * time.Hour).UTC().Truncate(time.Second)
	arn := "arn:" + partition(m.Region) + ":sts::" + m.AccountID + ":assumed-role/" + m.Role + "/" + cmp.Or(m.Session, m.InstanceID)
	token := base64.StdEncoding.EncodeToString([]byte(end.Format(time.RFC3339) + " " + arn))
	return e.sessionOf(token)
}

// sessionOf derives the session of a token.
func (e *EC2) sessionOf(token string) session {
	secret := hmac256(e.secret[:], token)
	return session{"ASIA" + strings.ToUpper(hex.EncodeToString(secret[:8])), base64.StdEncoding.EncodeToString(secret), token}
}

// parseToken reads the end and the ARN in a token.
func parseToken(token string) (end time.Time, arn string, ok bool) {
	text, err := base64.StdEncoding.DecodeString(token)
	at, arn, ok := strings.Cut(string(text), " ")
	if err == nil {
		end, err = time.Parse(time.RFC3339, at)
	}
	return end, arn, ok && err == nil
}

// credentials are a machine's answer at iam/security-credentials/<role>.
func (e *EC2) credentials(m EC2Machine) ([]byte, error) {
	s := e.session(m)
	end, _, _ := parseToken(s.token)
	return fmt.Appendf(nil, `{
  "Code" : "Success",
  "LastUpdated" : "%s",
  "Type" : "AWS-HMAC",
  "AccessKeyId" : "%s",
  "SecretAccessKey" : "%s",
  "Token" : "%s",
  "Expiration" : "%s"
}`, end.Add(-6*time.Hour).Format(time.RFC3339), s.accessKeyID, s.secret, s.token, end.Format(time.RFC3339)), nil
}

func hmac256(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

var stsHost = regexp.MustCompile(`^sts\.([a-z0-9-]+)\.amazonaws\.(?:com|com\.cn|eu)$`)

// RoundTrip is AWS' Security Token Service, as ec2.KindConfig.Transport takes it: it answers the
// request GetCallerIdentity that is signed in its query (Signature Version 4) with the credentials of a
// machine's role, for the host that it came to, and refuses others as the real one does. It accepts
// a signature for 15 minutes around its time.
func (e *EC2) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := http.StatusOK, ""
	arn, code, text := e.caller(r)
	if code == "" {
		parts := strings.Split(arn, ":")
		body = `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <GetCallerIdentityResult>
    <Arn>` + escape(arn) + `</Arn>
    <UserId>AROAEXAMPLEROLE:` + escape(arn[strings.LastIndex(arn, "/")+1:]) + `</UserId>
    <Account>` + escape(parts[4]) + `</Account>
  </GetCallerIdentityResult>
  <ResponseMetadata>
    <RequestId>01234567-89ab-cdef-0123-456789abcdef</RequestId>
  </ResponseMetadata>
</GetCallerIdentityResponse>
`
	} else {
		status, body = http.StatusForbidden, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <Error>
    <Type>Sender</Type>
    <Code>`+code+`</Code>
    <Message>`+escape(text)+`</Message>
  </Error>
  <RequestId>01234567-89ab-cdef-0123-456789abcdef</RequestId>
</ErrorResponse>
`
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"text/xml"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}, nil
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer never fails
	return b.String()
}

// caller returns the ARN of the session whose credentials signed a request, or the code with which
// STS refuses it.
func (e *EC2) caller(r *http.Request) (arn, code, text string) {
	host := cmp.Or(r.Host, r.URL.Host)
	region := stsHost.FindStringSubmatch(host)
	q := r.URL.Query()
	token := q.Get("X-Amz-Security-Token")
	end, arn, ok := parseToken(token)
	s := e.sessionOf(token)
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	now := clock(e.Now)
	switch {
	case region == nil || r.URL.Path != "/" || q.Get("Action") != "GetCallerIdentity" || q.Get("Version") != "2011-06-15":
		return "", "InvalidAction", "Could not find operation"
	case q.Get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256" || err != nil || q.Get("X-Amz-Expires") == "":
		return "", "IncompleteSignature", "a parameter of the signature is missing"
	case !ok || !strings.HasPrefix(q.Get("X-Amz-Credential"), s.accessKeyID+"/"):
		return "", "InvalidClientTokenId", "The security token included in the request is invalid"
	case !now.Before(end):
		return "", "ExpiredToken", "The security token included in the request is expired"
	case now.Sub(at).Abs() > 15*time.Minute:
		return "", "SignatureDoesNotMatch", "Signature expired: " + q.Get("X-Amz-Date")
	case q.Get("X-Amz-Signature") != signatureV4(r, host, region[1], s.secret):
		return "", "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."
	}
	return arn, "", ""
}

// signatureV4 is the signature of a request without a body, by the parameters in its query ("Create a
// signed AWS API request" in the IAM User Guide).
func signatureV4(r *http.Request, host, region, secret string) string {
	query := r.URL.Query()
	query.Del("X-Amz-Signature")
	names := strings.Split(query.Get("X-Amz-SignedHeaders"), ";")
	if !slices.Contains(names, "host") {
		return "none without the host"
	}
	var headers strings.Builder
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			value = host
		}
		headers.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return hex.EncodeToString(sum[:])
	}
	sorted := strings.ReplaceAll(query.Encode(), "+", "%20") // a plus sign is encoded
	canonical := strings.Join([]string{r.Method, "/", sorted, headers.String(), strings.Join(names, ";"), hash("")}, "\n")
	date := query.Get("X-Amz-Date")
	scope := date[:8] + "/" + region + "/sts/aws4_request"
	key := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = hmac256(key, part)
	}
	return hex.EncodeToString(hmac256(key, "AWS4-HMAC-SHA256\n"+date+"\n"+scope+"\n"+hash(canonical)))
}
