// Package forge makes evidence of a join on keys in software, changes one thing of it and
// signs again. Its tables of attacks are the only ones: the vectors of testdata/vectors are
// made from them, and the conformance runner of attesttest tries them on providers that
// run. A step that cannot be done is a panic, which [Caught] turns into an error.
package forge

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rsa"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/secret"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// The names of nodes and machines: machine-1 may be node-1, machine-2 node-2.
const (
	NodeName     = "node-1"
	OtherNode    = "node-2"
	MachineOne   = "machine-1"
	MachineTwo   = "machine-2"
	MachineThree = "machine-3"
	// The certificates with which the two come again.
	CredentialOne = "X509SHA256=1111111111111111111111111111111111111111111111111111111111111111"
	CredentialTwo = "X509SHA256=2222222222222222222222222222222222222222222222222222222222222222"
	// MachineType is the type of the OtherName that names a machine: 2.999.1, from the
	// arc for examples.
	MachineType = oid.OID("\x88\x37\x01")
)

// Bench is what evidence is made with: keys in software, the CA that certifies them, and
// what the control plane is called. All keys follow from their labels.
type Bench struct {
	Now time.Time // the clock
	// ClusterID, ProviderID and Bootstrap are those of the good node's join.
	ClusterID, ProviderID, Bootstrap string
	Client, Serving                  string // signer names; "" are those of package attest
	Quoted                           bool   // good answers have a quote

	// CA certifies the keys, Stranger is a CA that nobody trusts.
	CA, Stranger         *tpmsim.CA
	Ring, Retired, Later attest.RingKey // the key in use, one that is not any more, and one that is not yet

	TLS, TLS2       crypto.Signer // *ecdsa.PrivateKey on P-256
	Request         []byte        // the good node's PKCS#10 request
	AKP256, AKOther *SoftAK       // the good machine's AK, and another machine's

	// Machines are those of a live world, by name.
	Machines map[string]*Machine
	WeakEKs  map[string]*SoftEK // EKs that the world expects of the first machine, by attack

	// RSA takes long to make: these are nil where no vectors are written.
	RSATLS, RSA1024 *rsa.PrivateKey
	AKRSA           *SoftAK // the good machine's
}

// MakeKeys makes those in RSA too if asked.
func (w *Bench) MakeKeys(inRSA bool) {
	w.TLS = Repeatable{ECKey(elliptic.P256(), "TLS key", nil)}
	w.TLS2 = Repeatable{ECKey(elliptic.P256(), "another TLS key", nil)}
	w.AKP256 = w.NewSoftAK(ECKey(elliptic.P256(), "AK P-256", nil), schemeECDSA256, MachineOne)
	if inRSA {
		w.RSATLS, w.RSA1024 = RSAKey(2048, "RSA TLS key"), RSAKey(1024, "weak RSA key")
		w.AKRSA = w.NewSoftAK(RSAKey(2048, "AK RSA"), schemeRSASSA, MachineOne)
	}
	w.AKOther = w.NewSoftAK(ECKey(elliptic.P256(), "AK of machine 2", nil), schemeECDSA256, MachineTwo)
	w.Request = Must(csr.Create(csr.PurposeClient, w.TLS, NodeName, csr.CreateOptions{ProviderID: w.ProviderID}))
	w.Ring = newRingKey("ring key", w.Now.Add(-time.Hour), time.Time{})
	w.Retired = newRingKey("retired ring key", w.Now.Add(-48*time.Hour), w.Now.Add(-time.Second))
	w.Later = newRingKey("later ring key", w.Now.Add(time.Hour), time.Time{})
}

func newRingKey(label string, active, retired time.Time) attest.RingKey {
	return attest.RingKey{ID: [8]byte(Derive(label+" id", 8)), Secret: secret.New([message.SecretSize]byte(Derive(label, message.SecretSize))),
		ActiveAt: active, RetiredAt: retired}
}

// MachineName is the identity in AK certificates: every AK whose certificate has it
// belongs to one machine, those in software too, so that membership is not what
// refuses them.
func MachineName(name string) *tpmsim.OtherName {
	return &tpmsim.OtherName{Type: MachineType, Value: append([]byte{0x0c, byte(len(name))}, name...)}
}

// Identity is the machine identity of the OtherName machineName(name).
func Identity(name string) string {
	return "othername:" + MachineType.String() + ":" + Base64url(MachineName(name).Value)
}

// SPKI is a key's SubjectPublicKeyInfo in DER.
func SPKI(key crypto.PublicKey) []byte {
	return Must(csr.CanonicalSPKI(key))
}

// RawKey is the key inside a repeatable.
func RawKey(s crypto.Signer) crypto.Signer {
	if r, ok := s.(Repeatable); ok {
		return r.Signer
	}
	return s
}
