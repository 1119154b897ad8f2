package ec2

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/smithy-go/aws-http-auth/credentials"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

const (
	testAccount  = "123456789012"
	testRegion   = "us-east-2"
	testRole     = "node"
	testInstance = "i-0123456789abcdef0"
	otherID      = "i-0123456789abcdef1"
)

var (
	testTime  = time.Date(2026, 11, 22, 15, 0, 0, 0, time.UTC)
	testValue = bytes.Repeat([]byte{7}, valueSize)
	testRoles = []string{"arn:aws:iam::" + testAccount + ":role/" + testRole}
)

// known is a session that an imitated STS knows.
type known struct {
	AccessKeyID     string `json:"accessKeyID"`
	SecretAccessKey string `json:"secretAccessKey"`
	SessionToken    string `json:"sessionToken"`
	ARN             string `json:"arn"`
}

func (k *known) credentials() credentials.Credentials {
	return credentials.Credentials{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey, SessionToken: k.SessionToken}
}

// sessions are the imitated STS' sessions, by a name.
func sessions() map[string]known {
	all := map[string]known{}
	for n, s := range [][2]string{
		{"instance", "sts::" + testAccount + ":assumed-role/" + testRole + "/" + testInstance},
		{"another instance", "sts::" + testAccount + ":assumed-role/" + testRole + "/" + otherID},
		{"a person", "sts::" + testAccount + ":assumed-role/" + testRole + "/alice"},
		{"another role", "sts::" + testAccount + ":assumed-role/admin/" + testInstance},
		{"another account", "sts::210987654321:assumed-role/" + testRole + "/" + testInstance},
		{"another partition", "-cn:sts::" + testAccount + ":assumed-role/" + testRole + "/" + testInstance},
		{"a user", "iam::" + testAccount + ":user/" + testInstance},
	} {
		all[s[0]] = known{fmt.Sprintf("ASIAEXAMPLE%05d", n), fmt.Sprintf("example+secret/%d", n), fmt.Sprintf("example+token/%d==", n),
			"arn:aws" + map[bool]string{true: "", false: ":"}[strings.HasPrefix(s[1], "-")] + s[1]}
	}
	return all
}

// imitation is an STS that answers each request that one of its sessions has signed.
type imitation map[string]known

// RoundTrip signs the request again, and compares.
func (s imitation) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	for _, k := range s {
		at, err := time.Parse(timeFormat, q.Get(date))
		value, err2 := hex.DecodeString(r.Header.Get(valueHeader))
		e, err3 := endpointOf(strings.Split(r.URL.Host, ".")[1])
		if k.SessionToken != q.Get(token) || err != nil || err2 != nil || err3 != nil {
			continue
		}
		if again, err := sign(k.credentials(), e, value, at); err == nil && again.url(e) == r.URL.String() {
			return answer(http.StatusOK, good(k.ARN)), nil
		}
	}
	return answer(http.StatusForbidden, fault("SignatureDoesNotMatch")), nil
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// good is STS' answer about a caller.
func good(arn string) string {
	return `<GetCallerIdentityResponse xmlns="` + namespace + `">
  <GetCallerIdentityResult>
    <Arn>` + arn + `</Arn>
    <UserId>AROAEXAMPLE:` + arn[strings.LastIndex(arn, "/")+1:] + `</UserId>
    <Account>` + strings.Split(arn, ":")[4] + `</Account>
  </GetCallerIdentityResult>
  <ResponseMetadata>
    <RequestId>01234567-89ab-cdef-0123-456789abcdef</RequestId>
  </ResponseMetadata>
</GetCallerIdentityResponse>
`
}

// fault is STS' answer to a request that it refuses.
func fault(code string) string {
	return `<ErrorResponse xmlns="` + namespace + `">
  <Error><Type>Sender</Type><Code>` + code + `</Code><Message>It is refused.</Message></Error>
  <RequestId>01234567-89ab-cdef-0123-456789abcdef</RequestId>
</ErrorResponse>`
}

// lab is an Amazon EC2 whose clock stands, in three regions.
type lab struct{ cloud *cloudtest.EC2 }

func newLab(t testing.TB) *lab {
	t.Helper()
	cloud := testkit.Must(openCloud())
	return &lab{cloud}
}

var openCloud = sync.OnceValues(func() (*cloudtest.EC2, error) {
	cloud, err := cloudtest.OpenEC2(testRegion, "us-west-2", "cn-north-1", "eu-test-1")
	if err == nil {
		cloud.Now = func() time.Time { return testTime }
	}
	return cloud, err
})

// certificates are the certificates of regions with endpoints.
func (l *lab) certificates() awsid.Certificates {
	all := awsid.Certificates(l.cloud.Certificates())
	delete(all, "eu-test-1")
	return all
}

// platform is a control plane with roles in testAccount, whose STS is at a transport.
func (l *lab) platform(t testing.TB, transport http.RoundTripper) *platform {
	t.Helper()
	return testkit.Must(newPlatform(KindConfig{Certificates: l.certificates(), Roles: testRoles, Transport: transport}))
}

// parts are what evidence is made of.
type parts struct {
	lab      *lab
	document []byte
	by       known
	endpoint *endpoint
	value    []byte
	at       time.Time
	sent     func(*sentRequest) // changes the signed request
	bytes    func([]byte) []byte
}

// good is the evidence of testInstance.
func (l *lab) good() *parts {
	e, err := endpointOf(testRegion)
	if err != nil {
		panic(err)
	}
	return &parts{l, l.document(cloudtest.EC2Machine{}), sessions()["instance"], e, testValue, testTime, func(*sentRequest) {}, func(b []byte) []byte { return b }}
}

// document is testInstance's, except for fields that are set.
func (l *lab) document(m cloudtest.EC2Machine) []byte {
	for _, field := range []struct {
		of        *string
		otherwise string
	}{{&m.AccountID, testAccount}, {&m.Region, testRegion}, {&m.InstanceID, testInstance}} {
		if *field.of == "" {
			*field.of = field.otherwise
		}
	}
	data, err := l.cloud.Document(m)
	if err != nil {
		panic(err)
	}
	return data
}

func (p *parts) marshal() []byte {
	r, err := sign(p.by.credentials(), p.endpoint, p.value, p.at)
	if err != nil {
		panic(err)
	}
	e := evidence{p.document, r.sent(p.endpoint)}
	p.sent(&e.request)
	data, err := e.marshal()
	if err != nil {
		panic(err)
	}
	return p.bytes(data)
}

// verify has evidence looked at as a join does.
func verify(p *platform, data []byte, now time.Time) error {
	_, err := p.Verify(context.Background(), data, inquiry(now))
	return err
}

func inquiry(now time.Time) *attest.Inquiry {
	return &attest.Inquiry{Now: now, Budget: attest.NewBudget(12)}
}

const testSigner = "cluster.x-k8s.io/kube-apiserver-client-kubelet-ec2"

// plane is a control plane at a time that knows testInstance as node-1.
func (l *lab) plane(t *testing.T, key attest.RingKey, sts http.RoundTripper, now time.Time) *attest.Verifier {
	t.Helper()
	kind, err1 := kindOf(l.platform(t, sts))
	list, err2 := membership.NewStaticList([]membership.Member{{Machine: "aws:aws/us-east-2/" + testInstance, NodeName: "node-1", Provider: Provider}})
	ring, err3 := attest.NewStaticKeyRing(key)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	v, err := attest.NewVerifier(attest.VerifierConfig{KeyRing: ring, Kinds: []attest.Kind{kind}, Authorizer: list, Now: func() time.Time { return now },
		Policy: &csr.Policy{ClusterIDs: []string{"cluster-1"}, SignerNames: []string{testSigner}, Machines: func(_ context.Context, q csr.Question) (*csr.Machine, error) {
			return &csr.Machine{Name: "machine-0", NodeName: q.NodeName, BootstrapReady: true}, nil
		}}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// newRequest is the request of node-1, and its key.
func newRequest(t *testing.T) (crypto.Signer, []byte) {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := testkit.Must(csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{}))
	return key, request
}

// filed is a message as the server stores it, by the holder of a bootstrap token.
func filed(spec *csr.Spec, at time.Time) *csr.Request {
	return csr.Filed(spec, csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}, at)
}
