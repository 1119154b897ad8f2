package cloudtest

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// EC2 is a fake Amazon EC2 for tests: it signs instance identity documents, with one RSA-2048
// key and certificate for each region, gives machines the credentials of their roles, and is the
// Security Token Service that knows them ([EC2.RoundTrip]). It is safe for concurrent use.
type EC2 struct {
	// Now is the clock of signatures and session tokens; nil means time.Now. The
	// certificates are valid for 90 years around the real time.
	Now func() time.Time

	regions map[string]*authority
	secret  [32]byte // all credentials are derived from it
}

// EC2Machine is an instance.
type EC2Machine struct {
	AccountID  string // 12 digits
	Region     string // one of the cloud's regions
	InstanceID string // "i-" and 17 hexadecimal digits
	// Pending is when it was started, in whole seconds; its document is signed two
	// seconds later. The zero time means an hour before now.
	Pending time.Time
	// Role is the name of its role, or "" if it has none. Session is the name of the role's
	// session: "" means the instance's ID, as EC2 has it, and another is of a principal that assumes
	// the role directly.
	Role, Session string
}

// NewEC2 makes a cloud with the given regions and keys of its own.
func NewEC2(t testing.TB, regions ...string) *EC2 {
	t.Helper()
	cloud, err := OpenEC2(regions...)
	return opened(t, cloud, err)
}

// OpenEC2 is [NewEC2] for use outside tests.
func OpenEC2(regions ...string) (*EC2, error) {
	e := &EC2{regions: map[string]*authority{}}
	_, _ = rand.Read(e.secret[:]) // never fails
	for _, region := range regions {
		// The names are as in the real certificates, the same in every region.
		template := x509.Certificate{Subject: pkix.Name{Country: []string{"US"}, Province: []string{"Washington State"}, Locality: []string{"Seattle"},
			Organization: []string{"Amazon Web Services LLC"}}}
		a, err := issueRSA(nil, template, time.Now(), 90*365*24*time.Hour)
		if err != nil {
			return nil, err
		}
		e.regions[region] = a
	}
	return e, nil
}

// Certificates are the certificates for verifying documents, by region.
func (e *EC2) Certificates() map[string]*x509.Certificate {
	certs := map[string]*x509.Certificate{}
	for region, a := range e.regions {
		certs[region] = a.cert
	}
	return certs
}

// ec2Document is an instance identity document.
type ec2Document struct {
	AccountID               string   `json:"accountId"`
	Architecture            string   `json:"architecture"`
	AvailabilityZone        string   `json:"availabilityZone"`
	BillingProducts         []string `json:"billingProducts"`
	DevpayProductCodes      []string `json:"devpayProductCodes"`
	MarketplaceProductCodes []string `json:"marketplaceProductCodes"`
	ImageID                 string   `json:"imageId"`
	InstanceID              string   `json:"instanceId"`
	InstanceType            string   `json:"instanceType"`
	KernelID                *string  `json:"kernelId"`
	PendingTime             string   `json:"pendingTime"`
	PrivateIP               string   `json:"privateIp"`
	RamdiskID               *string  `json:"ramdiskId"`
	Region                  string   `json:"region"`
	Version                 string   `json:"version"`
}

// content is the document of a machine, written as AWS writes it, and its pending time.
func (e *EC2) content(m EC2Machine) (content []byte, pending time.Time, err error) {
	if pending = m.Pending; pending.IsZero() {
		pending = clock(e.Now).Add(-time.Hour)
	}
	content, err = json.MarshalIndent(ec2Document{AccountID: m.AccountID, Architecture: "x86_64", AvailabilityZone: m.Region + "a",
		ImageID: "ami-0123456789abcdef0", InstanceID: m.InstanceID, InstanceType: "m7i.large", PendingTime: pending.UTC().Format(time.RFC3339),
		PrivateIP: "10.0.0.17", Region: m.Region, Version: "2017-09-30"}, "", "  ")
	return []byte(strings.ReplaceAll(string(content), `": `, `" : `)), pending, err
}

// Document is the signed document of a machine, as served by /rsa2048, without base64:
// everyone on the machine gets the same one at any time.
func (e *EC2) Document(m EC2Machine) ([]byte, error) {
	content, pending, err := e.content(m)
	if err != nil {
		return nil, err
	}
	return e.Sign(m.Region, content, pending.Add(2*time.Second))
}

// Sign signs any content with the key of a region, which no customer can make AWS do, and
// panics if the region is not one of the cloud's. As in the real documents, the encoding is
// BER of indefinite length, there are signed attributes, and no certificate.
func (e *EC2) Sign(region string, content []byte, at time.Time) ([]byte, error) {
	a := e.regions[region]
	if a == nil {
		panic("cloudtest: no region " + region)
	}
	digest := sha256.Sum256(content)
	// The attributes are signed as a SET OF, and sent under the tag [0].
	var b cryptobyte.Builder
	b.AddASN1(asn1.SET, func(b *cryptobyte.Builder) {
		addAttribute(b, oidContentType, func(b *cryptobyte.Builder) { addOID(b, oidData) })
		addAttribute(b, oidSigningTime, func(b *cryptobyte.Builder) { b.AddASN1UTCTime(at.UTC()) })
		addAttribute(b, oidAlgorithmProtection, func(b *cryptobyte.Builder) {
			b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
				addAlgorithm(b, oidSHA256)
				b.AddASN1(asn1.Tag(1).ContextSpecific().Constructed(), func(b *cryptobyte.Builder) {
					addOID(b, oidSHA256WithRSA)
					b.AddASN1(asn1.NULL, func(*cryptobyte.Builder) {})
				})
			})
		})
		addAttribute(b, oidMessageDigest, func(b *cryptobyte.Builder) { b.AddASN1OctetString(digest[:]) })
	})
	attributes, err := b.Bytes()
	if err != nil {
		return nil, err
	}
	signed := sha256.Sum256(attributes)
	signature, err := a.key.Sign(rand.Reader, signed[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	var signer cryptobyte.Builder
	signer.AddASN1(asn1.SET, func(b *cryptobyte.Builder) {
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddASN1Int64(1)
			addSerial(b, a.cert)
			addAlgorithm(b, oidSHA256)
			b.AddBytes(append([]byte{byte(explicit0)}, attributes[1:]...))
			addAlgorithm(b, oidSHA256WithRSA)
			b.AddASN1OctetString(signature)
		})
	})
	signers, err := signer.Bytes()
	if err != nil {
		return nil, err
	}
	return indefinite(content, signers), nil
}

func addAttribute(b *cryptobyte.Builder, contents string, value func(*cryptobyte.Builder)) {
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		addOID(b, contents)
		b.AddASN1(asn1.SET, value)
	})
}

// indefinite is a SignedData as AWS encodes it: its outer parts have no length and end with
// two zero bytes.
func indefinite(content, signers []byte) []byte {
	var b cryptobyte.Builder
	open := func(tag byte) { b.AddBytes([]byte{tag, 0x80}) }
	open(0x30)
	addOID(&b, oidSignedData)
	open(0xa0)
	open(0x30)
	b.AddASN1Int64(1)
	b.AddASN1(asn1.SET, func(b *cryptobyte.Builder) { addAlgorithm(b, oidSHA256) })
	open(0x30)
	addOID(&b, oidData)
	open(0xa0)
	open(0x24)
	b.AddASN1OctetString(content)
	b.AddBytes(make([]byte, 6)) // of the string, its tag and the content
	b.AddBytes(signers)
	b.AddBytes(make([]byte, 6)) // of the SignedData, its tag and the whole
	return b.BytesOrPanic()
}

// Serve starts the metadata server of a machine, which speaks only IMDSv2: /latest/api/token
// issues session tokens, and a client that presents one gets document and rsa2048 below
// /latest/dynamic/instance-identity/, and below /latest/meta-data/ instance-id,
// placement/region, placement/availability-zone, services/partition and, for a machine with a role, its
// name and its credentials at iam/security-credentials/.
func (e *EC2) Serve(m EC2Machine) *Server {
	s := &ec2Server{cloud: e, tokens: map[string]time.Time{}}
	document := sync.OnceValues(func() ([]byte, error) { return e.Document(m) }) // AWS signs once
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", s.serveToken)
	for path, text := range map[string]string{
		"instance-id": m.InstanceID, "placement/region": m.Region, "placement/availability-zone": m.Region + "a", "services/partition": partition(m.Region),
	} {
		mux.HandleFunc("GET /latest/meta-data/"+path, s.guarded(func() ([]byte, error) { return []byte(text), nil }))
	}
	if m.Role != "" {
		const path = "GET /latest/meta-data/iam/security-credentials/"
		mux.HandleFunc(path+"{$}", s.guarded(func() ([]byte, error) { return []byte(m.Role), nil }))
		mux.HandleFunc(path+m.Role, s.guarded(func() ([]byte, error) { return e.credentials(m) }))
	}
	mux.HandleFunc("GET /latest/dynamic/instance-identity/document", s.guarded(func() ([]byte, error) {
		content, _, err := e.content(m)
		return content, err
	}))
	mux.HandleFunc("GET /latest/dynamic/instance-identity/rsa2048", s.guarded(func() ([]byte, error) {
		document, err := document()
		return lines(base64.StdEncoding.EncodeToString(document)), err
	}))
	return serve(mux)
}

func partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	case strings.HasPrefix(region, "eusc-"):
		return "aws-eusc"
	}
	return "aws"
}

// lines breaks a text every 64 characters, as AWS does.
func lines(s string) []byte {
	var b []byte
	for ; len(s) > 64; s = s[64:] {
		b = append(append(b, s[:64]...), '\n')
	}
	return append(b, s...)
}

// ec2Server keeps the session tokens of a machine.
type ec2Server struct {
	cloud *EC2

	mu     sync.Mutex
	tokens map[string]time.Time // when they expire
}

func (s *ec2Server) serveToken(w http.ResponseWriter, r *http.Request) {
	const header = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	seconds, err := strconv.Atoi(r.Header.Get(header))
	if err != nil || seconds < 1 || seconds > 21600 {
		http.Error(w, "Bad Request", http.StatusBadRequest)
		return
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	token := hex.EncodeToString(random[:])
	until := clock(s.cloud.Now).Add(time.Duration(seconds) * time.Second)
	s.mu.Lock()
	s.tokens[token] = until
	s.mu.Unlock()
	w.Header().Set(header, strconv.Itoa(seconds))
	_, _ = w.Write([]byte(token))
}

// guarded serves only holders of a token.
func (s *ec2Server) guarded(serve func() ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("X-Aws-Ec2-Metadata-Token")
		s.mu.Lock()
		until, known := s.tokens[token]
		s.mu.Unlock()
		if !known || !clock(s.cloud.Now).Before(until) {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		body, err := serve()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(body)
	}
}
