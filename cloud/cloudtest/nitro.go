package cloudtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"sync"
	"testing"
	"time"
)

// Nitro is a fake of Amazon EC2's Nitro hypervisor for tests: it signs the attestation
// documents of NitroTPMs and of enclaves, under a root of its own and the four certificates
// below it that the real documents include. It is safe for concurrent use.
type Nitro struct {
	// Now is the clock of the documents and of all certificates except the root, which is
	// valid for 30 years around the real time; nil means time.Now. The leaf lives for 3 hours.
	Now func() time.Time

	root   *authority
	issued *nitroIssued
}

// nitroIssued are the certificates of modules, which are reused while they are valid.
type nitroIssued struct {
	mu    sync.Mutex
	chain map[string][]*nitroChain
}

// nitroChain is a leaf and the certificates above it, root first.
type nitroChain struct {
	leaf   *authority
	bundle []*x509.Certificate
}

// NitroMachine is an instance with a NitroTPM.
type NitroMachine struct {
	// InstanceID is "i-" and 17 lower-case hexadecimal digits; Region is a region such as
	// us-east-2.
	InstanceID, Region string
	// PCRs are values of 48 bytes that replace the zeros that PCRs 0 to 23 have.
	PCRs map[int][]byte
}

// NewNitro makes a hypervisor with a root of its own.
func NewNitro(t testing.TB) *Nitro {
	t.Helper()
	n, err := OpenNitro()
	return opened(t, n, err)
}

// OpenNitro is [NewNitro] for use outside tests.
func OpenNitro() (*Nitro, error) {
	now := time.Now()
	root, err := issueNitro(nil, &x509.Certificate{Subject: nitroName("aws.nitro-enclaves"), MaxPathLen: -1,
		NotBefore: now.AddDate(-15, 0, 0), NotAfter: now.AddDate(15, 0, 0), IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature})
	return &Nitro{root: root, issued: &nitroIssued{chain: map[string][]*nitroChain{}}}, err
}

// Root is the root certificate for all documents.
func (n *Nitro) Root() *x509.Certificate { return n.root.cert }

// Asker is how a program on an instance queries its NitroTPM, as nitro.SourceConfig takes it.
func (n *Nitro) Asker(m NitroMachine) func(ctx context.Context, nonce, userData []byte) ([]byte, error) {
	return func(_ context.Context, nonce, userData []byte) ([]byte, error) { return n.Document(m, nonce, userData) }
}

// Document is the document of an instance's NitroTPM over a nonce and user data, each of which
// may be nil. An attacker who is root on that instance gets the same.
func (n *Nitro) Document(m NitroMachine, nonce, userData []byte) ([]byte, error) {
	return n.sign(m, "-tpm0000000000000000", "nitrotpm_pcrs", nonce, userData)
}

// Enclave is the document of an enclave on an instance: every EC2 customer can get one for an
// instance of their own, over anything they like.
func (n *Nitro) Enclave(m NitroMachine, nonce, userData []byte) ([]byte, error) {
	return n.sign(m, "-enc0123456789abcdef", "pcrs", nonce, userData)
}

// sign makes current certificates and signs a document with them.
func (n *Nitro) sign(m NitroMachine, module, pcrs string, nonce, userData []byte) ([]byte, error) {
	now := clock(n.Now).UTC().Truncate(time.Millisecond)
	c, err := n.current(m.InstanceID, m.InstanceID+module, m.Region, now)
	if err != nil {
		return nil, err
	}
	banks := 24
	if pcrs == "pcrs" {
		banks = 16
	}
	var p cborWriter
	p.b = append(p.b, 0xbf) // a map without a length
	p.text("module_id").text(m.InstanceID + module)
	p.text("digest").text("SHA384")
	p.text("timestamp").head(0, uint64(now.UnixMilli()))
	p.text(pcrs).head(5, uint64(banks))
	for i := range banks {
		value := m.PCRs[i]
		if value == nil {
			value = make([]byte, sha512.Size384)
		}
		p.head(0, uint64(i)).bytes(value)
	}
	p.text("certificate").bytes(c.leaf.cert.Raw)
	p.text("cabundle").head(4, uint64(len(c.bundle)))
	for _, above := range c.bundle {
		p.bytes(above.Raw)
	}
	p.text("public_key").bytes(nil)
	p.text("user_data").bytes(userData)
	p.text("nonce").bytes(nonce)
	p.b = append(p.b, 0xff)
	return signNitro(c.leaf.key.(*ecdsa.PrivateKey), p.b)
}

// signNitro makes a COSE_Sign1 (RFC 9052, 4.2) with ES384 and without a tag.
func signNitro(key *ecdsa.PrivateKey, payload []byte) ([]byte, error) {
	protected := []byte{0xa1, 0x01, 0x38, 0x22}
	var signed, out cborWriter
	signed.head(4, 4).text("Signature1").bytes(protected).bytes([]byte{}).bytes(payload)
	digest := sha512.Sum384(signed.b)
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return nil, err
	}
	signature := make([]byte, 96)
	r.FillBytes(signature[:48])
	s.FillBytes(signature[48:])
	out.head(4, 4).bytes(protected).head(5, 0).bytes(payload).bytes(signature)
	return out.b, nil
}

// current returns the certificates of a module at a time, reusing old ones while they are
// valid, as the real platform does.
func (n *Nitro) current(instance, module, region string, now time.Time) (*nitroChain, error) {
	n.issued.mu.Lock()
	defer n.issued.mu.Unlock()
	key := module + "." + region
	for _, c := range n.issued.chain[key] {
		if leaf := c.leaf.cert; !now.Before(leaf.NotBefore.Add(nitroBefore)) && now.Before(leaf.NotAfter.Add(-time.Hour)) {
			return c, nil
		}
	}
	c, err := n.chain(instance, module, region, now)
	if err != nil {
		return nil, err
	}
	n.issued.chain[key] = append(n.issued.chain[key], c)
	return c, nil
}

// nitroBefore is how long before the first document a leaf becomes valid.
const nitroBefore = 3 * time.Second

// chain makes the certificates of an instance below the root, and of a module on it.
func (n *Nitro) chain(instance, module, region string, now time.Time) (*nitroChain, error) {
	bundle, above := []*x509.Certificate{n.root.cert}, n.root
	for _, c := range []struct {
		name          string
		before, after time.Duration
		leaf          bool
	}{
		{"0123456789abcdef." + region + ".aws.nitro-enclaves", 4 * 24 * time.Hour, 16 * 24 * time.Hour, false},
		{"fedcba9876543210.zonal." + region + ".aws.nitro-enclaves", 24 * time.Hour, 5 * 24 * time.Hour, false},
		{instance + "." + region + ".aws.nitro-enclaves", time.Hour, 23 * time.Hour, false},
		{module + "." + region + ".aws", nitroBefore, 3 * time.Hour, true},
	} {
		template := &x509.Certificate{Subject: nitroName(c.name), NotBefore: now.Add(-c.before), NotAfter: now.Add(c.after), IsCA: !c.leaf,
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment}
		if !c.leaf {
			template.KeyUsage, template.MaxPathLen = x509.KeyUsageCertSign|x509.KeyUsageCRLSign, 3-len(bundle)
			template.MaxPathLenZero = template.MaxPathLen == 0
		}
		var err error
		if above, err = issueNitro(above, template); err != nil {
			return nil, err
		}
		if !c.leaf {
			bundle = append(bundle, above.cert)
		}
	}
	return &nitroChain{above, bundle}, nil
}

func issueNitro(issuer *authority, template *x509.Certificate) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return issue(issuer, template, key)
}

func nitroName(commonName string) pkix.Name {
	return pkix.Name{Country: []string{"US"}, Organization: []string{"Amazon"}, OrganizationalUnit: []string{"AWS"}, CommonName: commonName}
}

// cborWriter writes CBOR (RFC 8949) with the shortest heads.
type cborWriter struct{ b []byte }

func (w *cborWriter) head(major byte, n uint64) *cborWriter {
	switch first := major << 5; {
	case n < 24:
		w.b = append(w.b, first|byte(n))
	case n < 1<<8:
		w.b = append(w.b, first|24, byte(n))
	case n < 1<<16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, first|25), uint16(n))
	case n < 1<<32:
		w.b = binary.BigEndian.AppendUint32(append(w.b, first|26), uint32(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, first|27), n)
	}
	return w
}

// bytes writes a byte string, or null for nil.
func (w *cborWriter) bytes(b []byte) *cborWriter {
	if b == nil {
		w.b = append(w.b, 0xf6)
		return w
	}
	w.head(2, uint64(len(b)))
	w.b = append(w.b, b...)
	return w
}

func (w *cborWriter) text(s string) *cborWriter {
	w.head(3, uint64(len(s)))
	w.b = append(w.b, s...)
	return w
}
