package ec2

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// Checks on the request that a node has signed.
const (
	// checkMethod: it is not a GET.
	checkMethod refusal.Check = "ec2-request-method"
	// checkHost: it is not for the endpoint of the document's region, over https.
	checkHost refusal.Check = "ec2-request-host"
	// checkPath: its path is not "/".
	checkPath refusal.Check = "ec2-request-path"
	// checkQuery: its query is not that of a signed GetCallerIdentity, each parameter once, in
	// order, and encoded as this package does.
	checkQuery refusal.Check = "ec2-request-query"
	// checkHeaders: it has other headers than the one with the challenge's value, or that twice.
	checkHeaders refusal.Check = "ec2-request-headers"
	// checkSignedHeaders: the signature does not cover the host and the header.
	checkSignedHeaders refusal.Check = "ec2-request-signed-headers"
	// checkCredential: it is signed with a key for another region, service or day.
	checkCredential refusal.Check = "ec2-request-credential"
	// checkValue: the header's value is not 64 hexadecimal digits in lower case.
	checkValue refusal.Check = "ec2-request-value"
	// checkTime: it was signed 15 minutes ago or longer, or is from the future.
	checkTime refusal.Check = "ec2-request-time"
)

const (
	// valueHeader is the header that carries the challenge's value.
	valueHeader   = "x-nodeattest-qualifying-data"
	signedHeaders = "host;" + valueHeader
	valueSize     = 32

	service    = "sts"
	scopeEnd   = "/" + service + "/aws4_request"
	timeFormat = "20060102T150405Z"
	dayFormat  = "20060102"

	// goodFor is how long STS accepts a signature, before and after its time.
	goodFor = 15 * time.Minute
)

// parameters are the names of the query's parameters in their order, and the values of parameters that
// have one value in all requests.
func parameters() [][2]string {
	return [][2]string{
		{"Action", "GetCallerIdentity"}, {"Version", "2011-06-15"}, {"X-Amz-Algorithm", "AWS4-HMAC-SHA256"}, {credential, ""}, {date, ""},
		{"X-Amz-Expires", strconv.Itoa(int(goodFor / time.Second))}, {token, ""}, {signature, ""}, {signed, signedHeaders},
	}
}

const (
	credential = "X-Amz-Credential"
	date       = "X-Amz-Date"
	token      = "X-Amz-Security-Token"
	signature  = "X-Amz-Signature"
	signed     = "X-Amz-SignedHeaders"
)

// signedRequest is a request for a region's endpoint, with the parts that differ from one to another.
type signedRequest struct {
	accessKeyID string
	token       string // of the session
	signature   string
	at          time.Time
	value       []byte // of the header
}

// url is the URL at an endpoint. There is one for a request.
func (r *signedRequest) url(e *endpoint) string {
	values := map[string]string{credential: r.accessKeyID + "/" + r.at.Format(dayFormat) + "/" + e.region + scopeEnd,
		date: r.at.Format(timeFormat), token: r.token, signature: r.signature}
	var query []string
	for _, p := range parameters() {
		if value, differs := values[p[0]]; differs {
			p[1] = value
		}
		query = append(query, p[0]+"="+url.QueryEscape(p[1])) // no value has a space
	}
	return "https://" + e.host + "/?" + strings.Join(query, "&")
}

// sent is the request as evidence has it.
func (r *signedRequest) sent(e *endpoint) sentRequest {
	return sentRequest{http.MethodGet, r.url(e), []header{{valueHeader, hex.EncodeToString(r.value)}}}
}

// readRequest takes the parts from a node's evidence, and refuses a request that is not the one
// that they make at that endpoint.
func readRequest(s *sentRequest, e *endpoint) (*signedRequest, error) {
	if s.method != http.MethodGet {
		return nil, checkMethod.Refuse(refusal.Quote(s.method), http.MethodGet)
	}
	place, query, _ := strings.Cut(s.url, "?")
	scheme, rest, _ := strings.Cut(place, "://")
	host, path, _ := strings.Cut(rest, "/")
	switch {
	case scheme != "https", host != e.host:
		return nil, checkHost.Refuse(refusal.Quote(scheme+"://"+host), "https://"+e.host)
	case place != "https://"+e.host+"/":
		return nil, checkPath.Refuse(refusal.Quote("/"+path), "/")
	}
	values, err := readQuery(query)
	if err != nil {
		return nil, err
	}
	r := &signedRequest{token: values[token], signature: values[signature]}
	if err := r.readHeaders(s.headers, values[signed]); err != nil {
		return nil, err
	}
	if err := r.readScope(values[credential], values[date], e); err != nil {
		return nil, err
	}
	if err := r.checkForms(); err != nil {
		return nil, err
	}
	if s.url != r.url(e) {
		return nil, checkQuery.Refuse("other values, or the same in another order or encoding", "those of a signed GetCallerIdentity, in their order")
	}
	return r, nil
}

// readQuery reads the parameters. Each of those known is there once, and no other. No error has a
// value: one of them is a session token.
func readQuery(query string) (map[string]string, error) {
	known := parameters()
	values := make(map[string]string, len(known))
	for pair := range strings.SplitSeq(query, "&") {
		name, text, _ := strings.Cut(pair, "=")
		value, err := url.QueryUnescape(text)
		_, twice := values[name]
		if err != nil || twice || !slices.ContainsFunc(known, func(p [2]string) bool { return p[0] == name }) {
			return nil, checkQuery.Refuse("parameter "+refusal.Quote(name)+" that is unknown, malformed or there twice", "those of a signed GetCallerIdentity, each once")
		}
		values[name] = value
	}
	if len(values) != len(known) {
		return nil, checkQuery.Refuse(strconv.Itoa(len(values))+" parameters", "the "+strconv.Itoa(len(known))+" of a signed GetCallerIdentity")
	}
	return values, nil
}

// readHeaders reads the one header, which the signature covers.
func (r *signedRequest) readHeaders(headers []header, signed string) error {
	if len(headers) != 1 || headers[0].name != valueHeader {
		names := make([]string, len(headers))
		for i, h := range headers {
			names[i] = h.name
		}
		return checkHeaders.Refuse("headers "+refusal.OrNothing(refusal.Quotes(names)), valueHeader+" once, and no other")
	}
	if signed != signedHeaders {
		return checkSignedHeaders.Refuse(refusal.Quote(signed), signedHeaders)
	}
	var err error
	text := headers[0].value
	if r.value, err = hex.DecodeString(text); err != nil || len(r.value) != valueSize || strings.ToLower(text) != text {
		return checkValue.Refuse(refusal.Quote(text), "64 hexadecimal digits in lower case")
	}
	return nil
}

// readScope reads the access key ID, the time and the scope: a key is for one region, service and day.
func (r *signedRequest) readScope(scope, at string, e *endpoint) error {
	var err error
	if r.at, err = time.Parse(timeFormat, at); err != nil || r.at.Format(timeFormat) != at {
		return checkQuery.Refuse(date+" "+refusal.Quote(at), "a time such as 20260102T150405Z")
	}
	var ours bool
	want := "/" + r.at.Format(dayFormat) + "/" + e.region + scopeEnd
	if r.accessKeyID, ours = strings.CutSuffix(scope, want); !ours {
		return checkCredential.Refuse(refusal.Quote(scope), "<access key ID>"+want)
	}
	return nil
}

// checkForms checks the form of values that are sent on and were not compared with anything.
func (r *signedRequest) checkForms() error {
	switch {
	case len(r.accessKeyID) < 16 || len(r.accessKeyID) > 128 || !only(r.accessKeyID, upperOrDigit):
		return checkQuery.Refuse(credential+" of "+refusal.Quote(r.accessKeyID), "an access key ID of 16 to 128 letters and digits")
	case r.token == "" || !only(r.token, base64Digits):
		return checkQuery.Refuse(token+" of "+strconv.Itoa(len(r.token))+" bytes", "a session token: an instance has no long-lived keys")
	case len(r.signature) != 64 || !only(r.signature, lowerHex):
		return checkQuery.Refuse(signature+" of "+strconv.Itoa(len(r.signature))+" bytes", "64 hexadecimal digits in lower case")
	}
	return nil
}

// Characters of access key IDs, signatures and session tokens.
const (
	upperOrDigit = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	lowerHex     = "0123456789abcdef"
	base64Digits = upperOrDigit + "abcdefghijklmnopqrstuvwxyz+/=-_"
)

// only reports whether a text has only these characters.
func only(s, allowed string) bool { return strings.Trim(s, allowed) == "" }

// checkAge checks that STS still accepts the signature.
func (r *signedRequest) checkAge(now time.Time) error {
	if now.Sub(r.at).Abs() >= goodFor {
		return checkTime.Refuse("a signature of "+stamp(r.at), "one of the last 15 minutes at "+stamp(now)+": file again")
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
