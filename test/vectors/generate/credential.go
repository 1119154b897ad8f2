package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"slices"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// credentialTo is a challenge with a credential, and the EK in software and the AK's Name that
// it is for.
type credentialTo struct {
	ek        crypto.Signer
	akName    []byte
	challenge *message.Challenge
	secret    []byte
	// onChallenge changes the encoded challenge.
	onChallenge func([]byte) []byte
}

// credentialFor makes a verifier challenge the good node with that EK. The seed and what
// encrypts it are random: a new run makes other bytes.
func (w *world) credentialFor(ek crypto.Signer) *credentialTo {
	k := &forge.SoftEK{Public: ek.Public()}
	said := w.Hello(forge.Join{EK: k}, w.AKP256.Public.Raw, forge.Sources{Public: forge.SPKI(k.Public)})
	der := forge.Must(w.set.Environment.With(listing(k)).Challenge(w.ctx, said))
	c := &credentialTo{ek: ek, akName: w.AKP256.Public.Name(), challenge: forge.Must(message.ParseChallenge(der))}
	c.secret, _ = ((&forge.Join{Ring: w.Ring}).Secrets(&c.challenge.Binding))
	return c
}

func (c *credentialTo) vector() *vector.Credential {
	return &vector.Credential{Challenge: forge.Change(forge.Must(c.challenge.Marshal()), c.onChallenge), EK: pkcs8(c.ek), AKName: c.akName}
}

// credentials concern a credential's own bytes, for a TPM whose EK is known.
func (w *world) credentials() {
	p256, p384 := forge.ECKey(elliptic.P256(), "EK with credentials P-256", nil), forge.ECKey(elliptic.P384(), "EK with credentials P-384", nil)
	rsa2048, rsa3072 := rsaKey(2048, "EK with credentials RSA"), rsaKey(3072, "EK with credentials RSA-3072")
	for _, k := range []struct {
		name  string
		ek    crypto.Signer
		other crypto.Signer // another EK of the same kind
		cases []forge.Attack[changeCredential]
	}{
		{"p256", p256, forge.ECKey(elliptic.P256(), "another EK with credentials", nil), append(idObjectCases(32), pointCases(p256)...)},
		{"p384", p384, forge.ECKey(elliptic.P384(), "another EK with credentials", nil), append(idObjectCases(48), pointCases(p384)...)},
		{"rsa2048", rsa2048, rsaKey(2048, "another EK with credentials"), append(idObjectCases(32), ciphertextCases()...)},
		{"rsa3072", rsa3072, nil, append(idObjectCases(48), ciphertextCases()...)},
	} {
		add := func(name, what, expect string, c *credentialTo) {
			if name = "credential-" + k.name + name; expect == "" {
				w.acceptAs(name, what, c.vector(), nil, &vector.Result{Secret: c.secret})
			} else {
				w.refuseAs(name, what, expect, c.vector(), nil)
			}
		}
		add("", "A credential opens with the EK and the AK's Name that it is for.", "", w.credentialFor(k.ek))
		for _, a := range k.cases {
			c := w.credentialFor(k.ek)
			a.Change(c.challenge.Credential)
			add("-"+a.Name, a.What, a.Expect, c)
		}
		w.credentialsElsewhere(k.ek, k.other, add)
	}
	w.credentialFrames(p256)
}

// changeCredential changes the credential's parts.
type changeCredential = func(*message.Credential)

// idObjectCases change the idObject, whose HMAC has that size.
func idObjectCases(mac int) []forge.Attack[changeCredential] {
	return listed("idObjects", map[string]changeCredential{
		"hmac-bit":           func(c *message.Credential) { c.IDObject[2] ^= 1 },
		"hmac-last-bit":      func(c *message.Credential) { c.IDObject[1+mac] ^= 1 },
		"identity-bit":       func(c *message.Credential) { c.IDObject[2+mac] ^= 1 },
		"identity-last-bit":  func(c *message.Credential) { c.IDObject[len(c.IDObject)-1] ^= 1 },
		"identity-truncated": func(c *message.Credential) { c.IDObject = c.IDObject[:len(c.IDObject)-1] },
		"identity-extended":  func(c *message.Credential) { c.IDObject = append(c.IDObject, 0) },
		"identity-absent":    func(c *message.Credential) { c.IDObject = c.IDObject[:2+mac] },
		"hmac-absent":        func(c *message.Credential) { c.IDObject = append([]byte{0, 0}, c.IDObject[2+mac:]...) },
		"hmac-truncated": func(c *message.Credential) {
			c.IDObject = slices.Concat([]byte{0, byte(mac - 1)}, c.IDObject[2:1+mac], c.IDObject[2+mac:])
		},
		"hmac-too-long":          func(c *message.Credential) { c.IDObject[1]++ },
		"hmac-size-over-the-end": func(c *message.Credential) { c.IDObject[0] = 1 },
		"id-object-of-a-byte":    func(c *message.Credential) { c.IDObject = c.IDObject[:1] },
	})
}

// ciphertextCases change the RSA ciphertext of the seed.
func ciphertextCases() []forge.Attack[changeCredential] {
	return listed("seeds for RSA EKs", map[string]changeCredential{
		"seed-bit":                  func(c *message.Credential) { c.EncryptedSecret[100] ^= 1 },
		"seed-truncated":            func(c *message.Credential) { c.EncryptedSecret = c.EncryptedSecret[:len(c.EncryptedSecret)-1] },
		"seed-extended":             func(c *message.Credential) { c.EncryptedSecret = append(c.EncryptedSecret, 0) },
		"seed-with-a-zero-in-front": func(c *message.Credential) { c.EncryptedSecret = append([]byte{0}, c.EncryptedSecret...) },
		"seed-over-the-modulus":     func(c *message.Credential) { c.EncryptedSecret = bytes.Repeat([]byte{0xff}, len(c.EncryptedSecret)) },
		"seed-one":                  func(c *message.Credential) { clear(c.EncryptedSecret); c.EncryptedSecret[len(c.EncryptedSecret)-1] = 1 },
	})
}

// pointCases change the ephemeral key with which the seed is agreed.
func pointCases(ek *ecdsa.PrivateKey) []forge.Attack[changeCredential] {
	width := (ek.Params().BitSize + 7) / 8
	sized := func(b []byte) []byte { return append([]byte{0, byte(len(b))}, b...) }
	point := func(xy []byte) []byte { return slices.Concat(sized(xy[:width]), sized(xy[width:])) }
	other := forge.Must(forge.ECKey(ek.Curve, "another ephemeral key", nil).PublicKey.Bytes())[1:]
	return listed("seeds for EKs on curves", map[string]changeCredential{
		"point-off-the-curve":  func(c *message.Credential) { c.EncryptedSecret[len(c.EncryptedSecret)-1] ^= 1 },
		"point-at-infinity":    func(c *message.Credential) { c.EncryptedSecret = point(make([]byte, 2*width)) },
		"point-over-the-field": func(c *message.Credential) { copy(c.EncryptedSecret[2:], bytes.Repeat([]byte{0xff}, width)) },
		"point-negated": func(c *message.Credential) {
			y := new(big.Int).SetBytes(c.EncryptedSecret[4+width:])
			y.Sub(ek.Params().P, y).FillBytes(c.EncryptedSecret[4+width:])
		},
		"point-of-somebody-else":       func(c *message.Credential) { c.EncryptedSecret = point(other) },
		"point-truncated":              func(c *message.Credential) { c.EncryptedSecret = c.EncryptedSecret[:len(c.EncryptedSecret)-1] },
		"point-extended":               func(c *message.Credential) { c.EncryptedSecret = append(c.EncryptedSecret, 0) },
		"point-with-empty-coordinates": func(c *message.Credential) { c.EncryptedSecret = make([]byte, 4) },
		"point-as-an-rsa-seed":         func(c *message.Credential) { c.EncryptedSecret = bytes.Repeat([]byte{0x5a}, 256) },
	})
}

// credentialsElsewhere are credentials that reach a TPM or AK other than the intended one, or
// are made with the parameters of another kind of EK.
func (w *world) credentialsElsewhere(ek, other crypto.Signer, add func(name, what, expect string, c *credentialTo)) {
	seed := "credential-integrity"
	if _, isRSA := ek.(*rsa.PrivateKey); isRSA {
		seed = "credential-seed"
	}
	c := w.credentialFor(ek)
	c.akName = w.AKOther.Public.Name()
	add("-for-another-ak", "The credential is for another AK than the TPM has loaded.", "credential-integrity", c)
	c = w.credentialFor(ek)
	c.challenge.Credential.IDObject = w.credentialFor(ek).challenge.Credential.IDObject
	add("-of-two-halves", "The idObject of one credential stands beside the seed of another, both for this EK and AK.", "credential-integrity", c)
	if other != nil {
		c = w.credentialFor(other)
		c.ek = ek
		add("-for-another-ek", "The credential is for another EK of the same kind.", seed, c)
	}
	c = w.credentialFor(ek)
	c.challenge.Credential = otherParameters(ek.Public(), c.akName, c.secret)
	if len(c.challenge.Credential.IDObject) == 2+48+34 {
		seed = "credential-size" // the HMAC is longer than this EK's
	}
	add("-with-other-parameters", "The credential was made with the hash and the AES key size of the other kind of EK, as a node could have asked for.", seed, c)
}

// otherParameters makes a credential with SHA-384 and AES-256 for an EK whose parameters are
// SHA-256 and AES-128, and vice versa.
func otherParameters(ek crypto.PublicKey, akName, secret []byte) *message.Credential {
	area := softak.Changed(softak.PublicArea(ek, 0, softak.NoScheme), func(p *statement.Public) {
		p.NameAlg, p.Symmetric = tpm2.TPMAlgSHA384, statement.SymmetricScheme{Alg: tpm2.TPMAlgAES, KeyBits: 256, Mode: tpm2.TPMAlgCFB}
		if len(p.Modulus) > 256 || len(p.X) > 32 {
			p.NameAlg, p.Symmetric.KeyBits = tpm2.TPMAlgSHA256, 128
		}
	})
	key := forge.Must(tpm2.ImportEncapsulationKey(forge.Must(tpm2.Unmarshal[tpm2.TPMTPublic](area.Raw))))
	c := &message.Credential{}
	var err error
	c.IDObject, c.EncryptedSecret, err = tpm2.CreateCredential(rand.Reader, key, akName, secret)
	forge.Check(err)
	return c
}

// credentialFrames are challenges in which the DER around the credential is faulty.
func (w *world) credentialFrames(ek crypto.Signer) {
	parts := func(how func(e [][]byte) [][]byte) func([]byte) []byte {
		return forge.Replaced(1, func(e []byte) []byte { return forge.TLV(0xa1, how(forge.Elements(e))...) })
	}
	for _, a := range listed("frames of credentials", map[string]func([]byte) []byte{
		"without-seed":             parts(func(e [][]byte) [][]byte { return e[:1] }),
		"with-a-trailing-part":     parts(func(e [][]byte) [][]byte { return append(e, forge.TLV(4, []byte{0})) }),
		"with-empty-id-object":     parts(func(e [][]byte) [][]byte { return [][]byte{forge.TLV(4), e[1]} }),
		"with-a-huge-seed":         parts(func(e [][]byte) [][]byte { return [][]byte{e[0], forge.TLV(4, make([]byte, 1025))} }),
		"with-the-secret-in-clear": forge.Replaced(1, forge.With(forge.TLV(0x80, make([]byte, 32))...)),
	}) {
		c := w.credentialFor(ek)
		c.onChallenge = a.Change
		w.refuseAs("credential-p256-frame-"+a.Name, a.What, a.Expect, c.vector(), nil)
	}
}
