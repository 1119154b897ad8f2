package main

import (
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/hex"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The values of the good node and of its control plane.
const (
	clusterID   = "vectors"
	nodeName    = "node-1"
	otherNode   = "node-2"
	providerID  = "sim://vectors/node-1"
	bootstrap   = "system:bootstrap:abc123"
	credential  = "X509SHA256=1111111111111111111111111111111111111111111111111111111111111111"
	otherCred   = "X509SHA256=2222222222222222222222222222222222222222222222222222222222222222"
	machineType = oid.OID("\x88\x37\x01") // 2.999.1, from the arc for examples
)

// world is a TPM, a CA, keys, and the control plane's environment.
type world struct {
	ctx context.Context
	now time.Time
	set vector.Set

	tpm      *tpmsim.TPM
	shared   *tpm.SharedTPM
	stranger *tpmsim.CA

	ring           vector.RingKey // the key in use
	retired, later vector.RingKey

	tls, tls2        crypto.Signer // *ecdsa.PrivateKey on P-256
	rsaTLS           *rsa.PrivateKey
	rsa1024          *rsa.PrivateKey
	request          []byte // the good node's PKCS#10 request
	akP256, akRSA    *softAK
	akOther          *softAK // of another machine
	good, goodHello  *csr.Request
	goodTPMChallenge []byte
}

// generate makes everything. It needs the in-process simulator.
func generate() (set *vector.Set, messages *messages, err error) {
	defer caught(&err)
	w := &world{ctx: context.Background(), now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)}
	w.open()
	defer func() { err = errors.Join(err, w.tpm.Close()) }()
	w.makeKeys()
	w.makeEnvironment()
	w.makeGood()

	w.accepted()
	w.acceptedParts()
	w.statements()
	w.tpmStatements()
	w.certificates()
	w.bindings()
	w.answersMixed()
	w.challenges()
	w.nodes()
	w.pems()
	w.ders()
	w.policies()
	w.serving()
	w.extensions()
	w.roadEK()
	w.quotes()
	w.quotedAnswers()
	w.registry()
	w.firstUse()
	w.eksAlone()
	w.withdrawals()
	w.boots()
	w.credentials()
	w.akTrusts()
	w.tokens()
	w.signers()
	return &w.set, w.messages(), nil
}

func (w *world) open() {
	w.tpm = must(tpmsim.Open(&tpmsim.Options{
		Seed:      []byte(seed),
		AKs:       []tpmsim.AK{{Algorithm: tpmsim.RSA2048}, {Algorithm: tpmsim.P256}},
		OtherName: machineName("machine-1"),
		Now:       func() time.Time { return w.now },
	}))
	w.shared = tpm.ShareTPM(w.tpm)
	w.stranger = must(tpmsim.NewCA(&tpmsim.CAOptions{Name: "stranger", Seed: []byte(seed + " stranger"),
		Now: func() time.Time { return w.now }}))
}

// machineName is the identity in AK certificates: every AK whose certificate has it
// belongs to one machine, those in software too, so that membership is not what
// refuses them.
func machineName(name string) *tpmsim.OtherName {
	return &tpmsim.OtherName{Type: machineType, Value: append([]byte{0x0c, byte(len(name))}, name...)}
}

func (w *world) makeKeys() {
	w.tls = repeatable{ecKey(elliptic.P256(), "TLS key", nil)}
	w.tls2 = repeatable{ecKey(elliptic.P256(), "another TLS key", nil)}
	w.rsaTLS = rsaKey(2048, "RSA TLS key")
	w.rsa1024 = rsaKey(1024, "weak RSA key")
	w.akP256 = w.newSoftAK(ecKey(elliptic.P256(), "AK P-256", nil), schemeECDSA256, "machine-1")
	w.akRSA = w.newSoftAK(rsaKey(2048, "AK RSA"), schemeRSASSA, "machine-1")
	w.akOther = w.newSoftAK(ecKey(elliptic.P256(), "AK of machine 2", nil), schemeECDSA256, "machine-2")
	w.request = must(csr.Create(csr.PurposeClient, w.tls, nodeName, csr.CreateOptions{ProviderID: providerID}))
	key := func(label string, active, retired time.Duration) vector.RingKey {
		k := vector.RingKey{ID: hex.EncodeToString(derive(label+" id", 8)), Secret: derive(label, 32), ActiveAt: w.now.Add(active)}
		if retired != 0 {
			k.RetiredAt = w.now.Add(retired)
		}
		return k
	}
	w.ring = key("ring key", -time.Hour, 0)
	w.retired = key("retired ring key", -48*time.Hour, -time.Second)
	w.later = key("later ring key", time.Hour, 0)
}

// identity is the machine identity of the OtherName machineName(name).
func identity(name string) string {
	return "othername:" + machineType.String() + ":" + base64url(machineName(name).Value)
}

func (w *world) makeEnvironment() {
	w.set.Environment = vector.Environment{
		Now:        w.now,
		ClusterIDs: []string{clusterID},
		RingKeys:   []vector.RingKey{w.retired, w.ring, w.later},
		Issuers:    []vector.Issuer{{Roots: [][]byte{w.tpm.CA().Root().Raw}, Profile: profileTCG()}},
		Policy: &vector.Policy{
			SignerNames:      []string{csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerRecoveryTPM, csr.SignerKubeletServing},
			ReservedIPs:      []string{"10.96.0.0/12"},
			ReservedDNSNames: []string{"api.example.com"},
		},
		Machines: []vector.Machine{
			{Asked: nodeName, Name: "machine-1", NodeName: nodeName, ProviderID: providerID, BootstrapReady: true,
				DNSNames: []string{"node-1.example.com", "api.example.com", "kubernetes.default.svc"}, IPAddresses: []string{"192.0.2.1", "10.96.0.1", "127.0.0.1"}},
			{Asked: otherNode, Name: "machine-2", NodeName: otherNode, BootstrapReady: true,
				DNSNames: []string{"node-2.example.com"}, IPAddresses: []string{"192.0.2.2"}},
			{Asked: "node-3", Name: "machine-3", NodeName: "node-3"},
			{Asked: "node-4", Name: "machine-1", NodeName: nodeName, BootstrapReady: true},
		},
		Members: []vector.Member{
			{NodeName: nodeName, Machine: identity("machine-1"), ProviderID: providerID,
				DNSNames: []string{"node-1.example.com"}, IPAddresses: []string{"192.0.2.1"}},
			{NodeName: otherNode, Machine: identity("machine-2")},
		},
		Records: []vector.Record{
			{CredentialID: credential, NodeName: nodeName, SignerName: csr.SignerClientTPM},
			{CredentialID: otherCred, NodeName: otherNode, SignerName: csr.SignerClientTPM},
		},
	}
}

// profileTCG is tpm.ProfileTCG in JSON.
func profileTCG() vector.Profile {
	return vector.Profile{Name: "TCG AK", KeyUsage: []string{"digitalSignature"},
		ExtKeyUsage: []string{oid.TCGKpAIKCertificate.String()}, Identity: []string{"othername", "ak"}}
}

// issuersWith is the common environment's issuer with a changed profile.
func (w *world) issuersWith(change func(*vector.Profile)) []vector.Issuer {
	p := profileTCG()
	change(&p)
	return []vector.Issuer{{Roots: [][]byte{w.tpm.CA().Root().Raw}, Profile: p}}
}

// makeGood has the simulator's RSA AK say hello and answer a challenge.
func (w *world) makeGood() {
	n := w.tpmNode(tpm.GCERSA(), nil)
	w.goodHello = n.hello(w)
	w.goodTPMChallenge = n.challenge(w)
	w.good = n.answer(w, w.goodTPMChallenge)
}

// add keeps a vector.
func (w *world) add(v *vector.Vector) { w.set.Vectors = append(w.set.Vectors, v) }

func spki(key crypto.PublicKey) []byte {
	return must(csr.CanonicalSPKI(key))
}

// rawKey is the key inside a repeatable.
func rawKey(s crypto.Signer) crypto.Signer {
	if r, ok := s.(repeatable); ok {
		return r.Signer
	}
	return s
}
