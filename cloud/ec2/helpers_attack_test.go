package ec2

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/refusal"
)

// attack is evidence that is changed in one thing.
type attack struct {
	name string
	want refusal.Check // "": it is accepted
	make func(*parts)
}

func attacks() []attack {
	return slices.Concat(formAttacks(), documentAttacks(), requestAttacks(), queryAttacks(), headerAttacks(), signatureAttacks(), callerAttacks())
}

// formAttacks are about the DER.
func formAttacks() []attack {
	form := func(name string, change func([]byte) []byte) attack {
		return attack{name, checkEncoding, func(p *parts) { p.bytes = change }}
	}
	return []attack{
		form("empty", func([]byte) []byte { return nil }),
		form("cut", func(b []byte) []byte { return b[:len(b)-1] }),
		form("trailing-bytes", func(b []byte) []byte { return append(b, 0) }),
		form("long-head", func(b []byte) []byte { return slices.Concat([]byte{0x30, 0x83, 0}, b[2:]) }),
		form("document-without-a-request", func(b []byte) []byte { return b[4:] }),
		{"document-empty", checkEncoding, func(p *parts) { p.document = nil }},
		{"document-of-8193-bytes", checkEncoding, func(p *parts) { p.document = make([]byte, maxDocument+1) }},
		{"url-of-8193-bytes", checkEncoding, func(p *parts) { p.sent = func(s *sentRequest) { s.url += strings.Repeat("A", maxURL+1-len(s.url)) } }},
		{"url-with-a-line-end", checkEncoding, func(p *parts) { p.sent = func(s *sentRequest) { s.url += "\n" } }},
		{"url-that-is-not-ascii", checkEncoding, func(p *parts) { p.sent = func(s *sentRequest) { s.url += "\u212a" } }},
		{"five-headers", checkEncoding, func(p *parts) {
			p.sent = func(s *sentRequest) { s.headers = slices.Repeat(s.headers, 5) }
		}},
	}
}

// documentAttacks are about the identity document.
func documentAttacks() []attack {
	of := func(m cloudtest.EC2Machine) func(*parts) {
		return func(p *parts) { p.document = p.lab.document(m) }
	}
	return []attack{
		{"document-of-another-account", checkAccount, of(cloudtest.EC2Machine{AccountID: "210987654321"})},
		{"document-of-another-partition", checkPartition, of(cloudtest.EC2Machine{Region: "cn-north-1"})},
		{"document-of-a-region-without-an-endpoint", checkRegion, of(cloudtest.EC2Machine{Region: "eu-test-1"})},
		{"document-of-another-region", checkHost, of(cloudtest.EC2Machine{Region: "us-west-2"})},
		{"document-by-another-regions-key", "awsid-signer", func(p *parts) {
			p.document = p.lab.signed("us-west-2")
		}},
		{"document-edited", "awsid-digest", func(p *parts) {
			p.document = bytes.Replace(p.document, []byte("m7i.large"), []byte("m7i.small"), 1)
		}},
		{"document-in-json", "awsid-encoding", func(p *parts) { p.document = []byte("{}") }},
		{"document-of-rsa-1024", "awsid-algorithm", func(p *parts) { p.document = make([]byte, 128) }},
		{"document-of-an-old-start", "", of(cloudtest.EC2Machine{Pending: testTime.AddDate(-3, 0, 0)})},
	}
}

// signed is the document of testInstance signed by a region's key.
func (l *lab) signed(region string) []byte {
	d, err := awsid.ParseInsecure(l.document(cloudtest.EC2Machine{}))
	if err != nil {
		panic(err)
	}
	data, err := l.cloud.Sign(region, d.JSON, testTime)
	if err != nil {
		panic(err)
	}
	return data
}

// edit changes the URL that is shown.
func edit(name string, want refusal.Check, old, by string) attack {
	return attack{name, want, func(p *parts) {
		p.sent = func(s *sentRequest) {
			was := s.url
			if s.url = strings.Replace(was, old, by, 1); s.url == was {
				panic("nothing to replace: " + old)
			}
		}
	}}
}

// requestAttacks are about where the request goes.
func requestAttacks() []attack {
	const host = "sts.us-east-2.amazonaws.com"
	return []attack{
		{"method-post", checkMethod, func(p *parts) { p.sent = func(s *sentRequest) { s.method = "POST" } }},
		{"method-in-lower-case", checkMethod, func(p *parts) { p.sent = func(s *sentRequest) { s.method = "get" } }},
		edit("host-of-an-attacker", checkHost, host, "sts.us-east-2.example.com"),
		edit("host-of-another-region", checkHost, host, "sts.us-west-2.amazonaws.com"),
		edit("host-of-all-regions", checkHost, host, "sts.amazonaws.com"),
		edit("host-of-another-service", checkHost, host, "ec2.us-east-2.amazonaws.com"),
		edit("host-below-another", checkHost, host, host+".example.com"),
		edit("host-in-upper-case", checkHost, host, strings.ToUpper(host)),
		edit("host-with-a-port", checkHost, host, host+":443"),
		edit("host-behind-a-user", checkHost, host, "example.com@"+host),
		edit("host-before-a-backslash", checkHost, host, host+`\example.com`),
		edit("host-metadata", checkHost, host, "169.254.169.254"),
		edit("host-empty", checkHost, host, ""),
		edit("without-tls", checkHost, "https://", "http://"),
		edit("scheme-in-upper-case", checkHost, "https://", "HTTPS://"),
		edit("path-another", checkPath, host+"/", host+"/redirect"),
		edit("path-of-two-slashes", checkPath, host+"/", host+"//"),
		edit("path-with-dots", checkPath, host+"/", host+"/x/.."),
		edit("path-encoded", checkPath, host+"/", host+"/%2F"),
		edit("path-absent", checkPath, host+"/", host),
	}
}

// queryAttacks change the query.
func queryAttacks() []attack {
	query := func(name, old, by string) attack { return edit(name, checkQuery, old, by) }
	return []attack{
		query("query-of-another-action", "GetCallerIdentity", "GetSessionToken"),
		query("query-of-another-version", "2011-06-15", "2010-05-08"),
		query("query-of-another-algorithm", "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"),
		query("query-for-a-week", "X-Amz-Expires=900", "X-Amz-Expires=604800"),
		query("query-with-more", "&Version", "&RoleArn=x&Version"),
		query("query-with-an-empty-one", "&Version", "&&Version"),
		query("query-with-one-twice", "&Version", "&Action=GetCallerIdentity&Version"),
		query("query-without-one", "&X-Amz-Expires=900", ""),
		query("query-in-another-order", "Action=GetCallerIdentity&Version=2011-06-15", "Version=2011-06-15&Action=GetCallerIdentity"),
		query("query-in-another-encoding", "%2B", "%2b"),
		query("query-with-an-encoded-letter", "GetCaller", "%47etCaller"),
		query("query-with-an-encoded-name", "Action=", "%41ction="),
		query("query-with-a-bad-encoding", "%2B", "%2"),
		query("query-before-a-fragment", "&X-Amz-Expires=900", "&X-Amz-Expires=900#"),
		query("query-behind-a-semicolon", "&Version", ";Version"),
		query("query-with-a-wrong-day", "X-Amz-Date=20261122T", "X-Amz-Date=20261131T"),
		query("query-without-a-token", "X-Amz-Security-Token=example%2Btoken%2F0%3D%3D", "X-Amz-Security-Token="),
		query("query-with-a-space-in-the-token", "example%2Btoken", "example+token"),
		query("query-with-a-key-id-of-15-letters", "ASIAEXAMPLE00000", "ASIAEXAMPLE0000"),
		query("query-with-a-key-id-in-lower-case", "ASIAEXAMPLE00000", "asiaexample00000"),
		query("query-empty", "?Action", "?#Action"),
	}
}

// headerAttacks are about the header that carries the challenge's value.
func headerAttacks() []attack {
	headers := func(name string, want refusal.Check, change func([]header) []header) attack {
		return attack{name, want, func(p *parts) { p.sent = func(s *sentRequest) { s.headers = change(s.headers) } }}
	}
	value := func(name string, want refusal.Check, value string) attack {
		return headers(name, want, func([]header) []header { return []header{{valueHeader, value}} })
	}
	text := hex.EncodeToString(testValue)
	return []attack{
		headers("header-absent", checkHeaders, func([]header) []header { return nil }),
		headers("header-twice", checkHeaders, func(h []header) []header { return append(h, h[0]) }),
		headers("header-twice-with-two-values", checkHeaders, func(h []header) []header {
			return append(h, header{valueHeader, strings.Repeat("00", valueSize)})
		}),
		headers("header-and-another", checkHeaders, func(h []header) []header { return append(h, header{"accept", "application/json"}) }),
		headers("header-in-upper-case", checkHeaders, func([]header) []header { return []header{{"X-Nodeattest-Qualifying-Data", text}} }),
		headers("header-of-another-protocol", checkHeaders, func([]header) []header { return []header{{"x-k8s-aws-id", text}} }),
		edit("header-unsigned", checkSignedHeaders, "host%3Bx-nodeattest-qualifying-data", "host"),
		edit("host-unsigned", checkSignedHeaders, "host%3Bx-nodeattest-qualifying-data", "x-nodeattest-qualifying-data"),
		edit("more-is-signed", checkSignedHeaders, "host%3B", "host%3Bx-amz-target%3B"),
		value("value-of-31-bytes", checkValue, text[2:]),
		value("value-of-33-bytes", checkValue, text+"07"),
		value("value-in-upper-case", checkValue, strings.Repeat("0A", valueSize)),
		value("value-with-a-space", checkValue, text+" "),
		value("value-changed", checkRefused, strings.Repeat("00", valueSize)),
	}
}

// signatureAttacks are about the key and the time of the signature.
func signatureAttacks() []attack {
	at := func(name string, want refusal.Check, age time.Duration) attack {
		return attack{name, want, func(p *parts) { p.at = testTime.Add(-age) }}
	}
	return []attack{
		{"key-of-another-region", checkCredential, func(p *parts) {
			there, _ := endpointOf("us-west-2")
			p.endpoint = &endpoint{p.endpoint.partition, there.region, p.endpoint.host}
		}},
		{"key-of-another-region-called-ours", checkRefused, func(p *parts) {
			ours := p.endpoint.region
			there, _ := endpointOf("us-west-2")
			p.endpoint = &endpoint{p.endpoint.partition, there.region, p.endpoint.host}
			p.sent = func(s *sentRequest) { s.url = strings.Replace(s.url, "us-west-2", ours, 1) }
		}},
		{"signed-for-another-host", checkRefused, func(p *parts) {
			ours := p.endpoint.host
			p.endpoint = &endpoint{p.endpoint.partition, p.endpoint.region, "sts.example.com"}
			p.sent = func(s *sentRequest) { s.url = strings.Replace(s.url, "sts.example.com", ours, 1) }
		}},
		edit("key-of-another-service", checkCredential, "sts%2Faws4_request", "ec2%2Faws4_request"),
		edit("key-of-another-day", checkCredential, "%2F20261122%2F", "%2F20261121%2F"),
		edit("key-without-a-scope", checkCredential, "%2F20261122%2Fus-east-2%2Fsts%2Faws4_request", ""),
		edit("signature-cut", checkQuery, "X-Amz-Signature=", "X-Amz-Signature=0"),
		{"signature-of-another-secret", checkRefused, func(p *parts) { p.by.SecretAccessKey = "another" }},
		{"signature-of-another-token", checkRefused, func(p *parts) { p.by.SessionToken = "another" }},
		at("signed-15-minutes-ago", checkTime, goodFor),
		at("signed-yesterday", checkTime, 24*time.Hour),
		at("signed-in-15-minutes", checkTime, -goodFor),
		at("signed-a-second-later", "", goodFor-time.Second),
		at("signed-by-a-clock-that-is-ahead", "", -(goodFor - time.Second)),
	}
}

// callerAttacks are good signatures of other principals.
func callerAttacks() []attack {
	by := func(name string, want refusal.Check) attack {
		return attack{"by-" + strings.ReplaceAll(name, " ", "-"), want, func(p *parts) { p.by = sessions()[name] }}
	}
	return []attack{
		{"as-it-is", "", func(*parts) {}},
		by("another instance", checkSession),
		by("a person", checkSession),
		by("another role", checkRole),
		by("another account", checkAccount),
		by("another partition", checkPartition),
		by("a user", checkARN),
		{"another-machines-document", checkSession, func(p *parts) { p.document = p.lab.document(cloudtest.EC2Machine{InstanceID: otherID}) }},
		{"another-instance-as-it-is", "", func(p *parts) {
			p.document, p.by = p.lab.document(cloudtest.EC2Machine{InstanceID: otherID}), sessions()["another instance"]
		}},
	}
}
