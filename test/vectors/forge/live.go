package forge

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // SHA-384, for the larger EKs
	"fmt"
	"math/big"
	"slices"

	"github.com/google/go-tpm/tpm2"
	"golang.org/x/crypto/cryptobyte"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// Machine is a machine whose TPM is in software.
type Machine struct {
	AK *SoftAK // the attestation key
	// EK is the one by which the machine is known, Second another one of the same TPM.
	EK, Second *SoftEK
}

// The weak EKs of the first machine, by the names of their attacks. No one has their private
// keys.
const (
	WeakROCA     = "ek-roca"
	WeakSize     = "ek-too-small"
	WeakExponent = "ek-exponent-3"
)

// MakeMachines makes the machines of a live world, which the vectors do not have: three machines with two EKs
// each, and the weak EKs of the first. Call MakeKeys first.
func (w *Bench) MakeMachines() {
	third := w.NewSoftAK(ECKey(elliptic.P256(), "AK of machine 3", nil), softak.ECDSA, MachineThree)
	w.Machines = map[string]*Machine{MachineOne: {AK: w.AKP256}, MachineTwo: {AK: w.AKOther}, MachineThree: {AK: third}}
	for name, m := range w.Machines {
		m.EK = w.NewEK(ECKey(elliptic.P256(), "EK of "+name, nil))
		m.Second = w.NewEK(ECKey(elliptic.P384(), "second EK of "+name, nil))
	}
	w.WeakEKs = map[string]*SoftEK{}
	for name, key := range map[string]*rsa.PublicKey{
		WeakROCA:     {N: ROCAModulus(), E: 65537},
		WeakSize:     {N: OddNumber("small EK", 1024), E: 65537},
		WeakExponent: {N: OddNumber("EK with exponent 3", 2048), E: 3},
	} {
		w.WeakEKs[name] = &SoftEK{Public: key, Chain: EKChain(w.CA, key, tpmsim.CertificateOptions{})}
	}
}

// NewEK has the CA certify a key in software as an EK.
func (w *Bench) NewEK(key *ecdsa.PrivateKey) *SoftEK {
	return &SoftEK{Public: key.Public(), private: key, Chain: EKChain(w.CA, key.Public(), tpmsim.CertificateOptions{})}
}

// EKChain is a CA's certificate for an EK, followed by the one above it.
func EKChain(ca *tpmsim.CA, key crypto.PublicKey, o tpmsim.CertificateOptions) [][]byte {
	return [][]byte{Must(ca.IssueEK(key, o)).Raw, ca.EKIntermediate().Raw}
}

// AKChain is a CA's certificate for an AK, followed by the one above it.
func AKChain(ca *tpmsim.CA, key crypto.PublicKey, o tpmsim.CertificateOptions) [][]byte {
	return [][]byte{Must(ca.IssueAK(key, o)).Raw, ca.AKIntermediate().Raw}
}

// OddNumber has that many bits, and is derived from the label.
func OddNumber(label string, bits int) *big.Int {
	b := Derive(label, bits/8)
	b[0], b[len(b)-1] = b[0]|0x80, b[len(b)-1]|1
	return new(big.Int).SetBytes(b)
}

// ROCAModulus is a modulus of 2048 bits with the fingerprint of CVE-2017-15361: 1
// modulo each small prime that the flawed library's moduli give away. No one knows its
// factors.
func ROCAModulus() *big.Int {
	m := big.NewInt(2)
	for _, p := range []int64{11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157} {
		m.Mul(m, big.NewInt(p))
	}
	raw := Derive("ROCA modulus", 256)
	raw[0] = 0xc0
	n := new(big.Int).SetBytes(raw)
	n.Sub(n, new(big.Int).Mod(n, m))
	return n.Add(n, big.NewInt(1))
}

// Try is one attack on a running verifier.
type Try struct {
	*Bench
	Road attest.Road // that the attack takes
	// Challenge gives a hello to the verifier and returns its answer.
	Challenge func(hello *csr.Request) (*message.Challenge, error)
}

// On is the join of a machine on the attack's road.
func (t *Try) On(machine string, j Join) *Forgery {
	m := t.Machines[machine]
	if t.Road == attest.RoadEK {
		j.EK = m.EK
	}
	return t.Forge(m.AK, j)
}

// Prove runs an honest machine's join: hello, challenge, answer.
func (t *Try) Prove(machine string, j Join) (*csr.Bundle, error) {
	f := t.On(machine, j)
	if err := t.follow(f, &thief{eks: []*SoftEK{t.Machines[machine].EK}, names: [][]byte{f.AK.Public.Name()}}); err != nil {
		return nil, err
	}
	return f.Bundle(), nil
}

// follow says hello with the keys and certificates of f, and has f answer the challenge if who
// can open it.
func (t *Try) follow(f *Forgery, who *thief) error {
	c, err := t.Challenge(t.Hello(f.Join, f.AKPublic, f.sources()))
	if err != nil {
		return err
	}
	if f.secret, err = who.open(c); err != nil {
		return err
	}
	f.B = &c.Binding
	f.derive()
	return nil
}

// thief takes on the verifier's own challenge with things that are not all his own: the TPMs
// that he has, and the objects in them.
type thief struct {
	eks   []*SoftEK
	names [][]byte
}

// open opens a challenge with one of his TPMs.
func (t *thief) open(c *message.Challenge) (secret []byte, err error) {
	if c.Credential == nil {
		return c.Clear, nil
	}
	for _, ek := range t.eks {
		for _, name := range t.names {
			if secret, err = OpenCredential(ek.private, name, (*attest.Credential)(c.Credential)); err == nil {
				return secret, nil
			}
		}
	}
	return nil, Shut("the credential does not open: " + err.Error())
}

// Shut is the outcome of an attack that failed before there was a request.
type Shut string

// Error says why.
func (s Shut) Error() string { return "the attack came to nothing: " + string(s) }

// DenyReason says that this is as good as a refusal.
func (Shut) DenyReason() string { return "AttackFailed" }

// CheckShut is the check that [Shut] matches.
const CheckShut refusal.Check = "attack-failed"

// Unwrap returns CheckShut.
func (Shut) Unwrap() error { return CheckShut }

// Live is an attack on a running verifier. An error of Make is a refusal; what cannot be made
// at all is a panic that Caught turns into an error.
type Live struct {
	// Name is stable, Class is one of the constants, What is a sentence.
	Name, Class, What string
	Make              func(*Try) (*csr.Request, error)
	// Expect are the checks that may refuse it, where attacks.md names any.
	Expect []string
	// Early are the checks that may refuse it before there is an answer; nil if it always gets that far.
	Early []refusal.Check
}

// The classes of live attacks.
const (
	ClassRequest   = "request"
	ClassBinding   = "binding"
	ClassStatement = "statement"
)

// forged is an attack on the good answer of the first machine.
func forged(class, name, what string, change func(*Forgery), expect ...string) Live {
	return Live{name, class, what, func(t *Try) (*csr.Request, error) {
		f := t.On(MachineOne, Join{})
		change(f)
		return f.Answer(), nil
	}, expect, nil}
}

// lived are the attacks of a table that are live, with a class, or ClassRequest if a check of
// package csr refuses them. The prefix is for names that are not overridden.
func lived[F any](class, prefix string, table []Attack[F], on func(F) func(*Forgery)) (out []Live) {
	for _, a := range table {
		of := class
		if a.InCSR && a.Expect != string(csr.CheckProviderVersion) { // which no policy reads
			of = ClassRequest
		}
		if name := a.liveAs(prefix); name != "" {
			out = append(out, forged(of, name, a.What, on(a.Change), a.Checks()...))
		}
	}
	return out
}

// LiveAttacks are the attacks on TPM evidence on one road: the vectors' attacks, except the ones
// that need RSA keys or a verifier's own challenge.
func (w *Bench) LiveAttacks(road attest.Road, resident bool) []Live {
	statements := slices.DeleteFunc(StatementAttacks(), func(a Forged) bool { return a.Resident && !resident })
	out := slices.Concat(
		lived(ClassBinding, "", append(BoundAttacks(), StolenAttacks()...), same),
		lived(ClassStatement, "", statements, same),
		lived(ClassBinding, "echo-", EchoAttacks(), onParts),
		lived(ClassStatement, "", FrameAttacks(), onParts))
	if w.Quoted {
		out = slices.Concat(out, lived(ClassStatement, "quote-", QuoteAttacks(), onQuoting), lived(ClassStatement, "answer-", QuotedAttacks(), same), lived(ClassStatement, "", bootAttacks(), same))
	}
	return append(out, w.liveAlone(road)...)
}

// same is a change to the answer itself, onParts one after it was taken apart, and onQuoting
// one to its quote.
func same(change func(*Forgery)) func(*Forgery) { return change }

func onParts(change func(*Parts)) func(*Forgery) { return func(f *Forgery) { f.onParts = change } }

func onQuoting(change func(*Quoting)) func(*Forgery) { return func(f *Forgery) { change(f.quote) } }

// CredentialFault is why a TPM does not open a credential. TPM2_ActivateCredential has other
// codes for it, which are not the same in every TPM.
type CredentialFault string

// The faults of a credential.
const (
	// FaultSize: a part is cut short, too long, or its own sizes do not add up.
	FaultSize CredentialFault = "credential-size"
	// FaultSeed: the RSA ciphertext does not decrypt to a seed.
	FaultSeed CredentialFault = "credential-seed"
	// FaultPoint: the ephemeral key is not on the EK's curve.
	FaultPoint CredentialFault = "credential-point"
	// FaultIntegrity: the HMAC does not match the identity and the AK's Name.
	FaultIntegrity CredentialFault = "credential-integrity"
)

// Error returns the stable name.
func (f CredentialFault) Error() string { return string(f) }

// parametersOf returns the hash and the AES key size, in bits, of credentials for an EK: the
// templates of the TCG EK Credential Profile 2.6, B.3 and B.4, by the EK's kind only.
func parametersOf(ek any) (crypto.Hash, int, error) {
	size := 0
	switch k := ek.(type) {
	case *rsa.PrivateKey:
		size = k.N.BitLen()
	case *ecdsa.PrivateKey:
		size = k.Params().BitSize
	}
	switch size {
	case 2048, 256:
		return crypto.SHA256, 128, nil
	case 3072, 384:
		return crypto.SHA384, 256, nil
	}
	return 0, 0, fmt.Errorf("an EK of type %T for which there are no credentials", ek)
}

// OpenCredential opens a credential as TPM2_ActivateCredential does (TPM 2.0 Library, Part
// 1, 24): the seed, the HMAC, and only then the secret.
func OpenCredential(ek any, akName []byte, c *attest.Credential) ([]byte, error) {
	hash, bits, err := parametersOf(ek)
	if err != nil {
		return nil, err
	}
	s := cryptobyte.String(c.IDObject)
	var mac cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&mac) || len(mac) > hash.Size() {
		return nil, FaultSize
	}
	identity := []byte(s)
	seed, err := openSeed(ek, hash, c.EncryptedSecret)
	if err != nil {
		return nil, err
	}
	check := hmac.New(hash.New, tpm2.KDFa(hash, seed, "INTEGRITY", nil, nil, 8*hash.Size()))
	check.Write(identity)
	check.Write(akName)
	if !hmac.Equal(check.Sum(nil), mac) {
		return nil, FaultIntegrity
	}
	block, err := aes.NewCipher(tpm2.KDFa(hash, seed, "STORAGE", akName, nil, bits))
	if err != nil {
		return nil, err
	}
	plain := make([]byte, len(identity))
	cipher.NewCFBDecrypter(block, make([]byte, aes.BlockSize)).XORKeyStream(plain, identity) //nolint:staticcheck // what TPMs do
	s = plain
	var secret cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&secret) || !s.Empty() || len(secret) != sha256.Size {
		return nil, FaultSize
	}
	return secret, nil
}

// openSeed is Part 1, B.10.4 (RSA-OAEP with the label IDENTITY) and C.6.4 (one-pass
// ECDH and KDFe).
func openSeed(ek any, hash crypto.Hash, encrypted []byte) ([]byte, error) {
	k, isRSA := ek.(*rsa.PrivateKey)
	if isRSA {
		if len(encrypted) != k.Size() {
			return nil, FaultSize
		}
		seed, err := rsa.DecryptOAEP(hash.New(), nil, k, encrypted, []byte("IDENTITY\x00"))
		if err != nil || len(seed) != hash.Size() {
			return nil, FaultSeed
		}
		return seed, nil
	}
	private, err := ek.(*ecdsa.PrivateKey).ECDH()
	if err != nil {
		return nil, err
	}
	own := private.PublicKey().Bytes()[1:]
	width := len(own) / 2
	s := cryptobyte.String(encrypted)
	var x, y cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&x) || !s.ReadUint16LengthPrefixed(&y) || !s.Empty() || len(x) != width || len(y) != width {
		return nil, FaultSize
	}
	ephemeral, err := private.Curve().NewPublicKey(append(append([]byte{4}, x...), y...))
	if err != nil {
		return nil, FaultPoint
	}
	z, err := private.ECDH(ephemeral)
	if err != nil {
		return nil, FaultPoint
	}
	return tpm2.KDFe(hash, z, "IDENTITY", x, own[:width], 8*hash.Size()), nil
}
