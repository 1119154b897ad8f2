package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"math/big"
	"slices"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// credentialTo is a challenge with a credential, and the EK in software and the AK's
// Name that it is for.
type credentialTo struct {
	ek        crypto.Signer
	akName    []byte
	challenge *message.Challenge
	secret    []byte
	// onChallenge changes the encoded challenge.
	onChallenge func([]byte) []byte
}

// credentialFor has a verifier challenge the good node with that EK. The seed and what
// encrypts it are drawn: a new run makes other bytes.
func (w *world) credentialFor(ek crypto.Signer) *credentialTo {
	r := &roadEK{world: w}
	k := &forge.SoftEK{Public: ek.Public()}
	env := &vector.Environment{AllowedEKs: []string{k.Identity()}, Members: r.environmentMembers(k)}
	hello := w.Hello(forge.Join{EK: k}, w.AKP256.Public.Raw, forge.Sources{Public: forge.SPKI(k.Public)})
	der := forge.Must(w.set.Environment.With(env).Challenge(w.ctx, hello))
	c := &credentialTo{ek: ek, akName: w.AKP256.Public.Name(), challenge: forge.Must(message.ParseChallenge(der))}
	c.secret, _ = ((&forge.Join{Ring: w.Ring}).Secrets(&c.challenge.Binding))
	return c
}

// environmentMembers takes the EKs for members.
func (r *roadEK) environmentMembers(members ...*forge.SoftEK) []vector.Member {
	var out []vector.Member
	for _, ek := range members {
		out = append(out, vector.Member{NodeName: forge.NodeName, Machine: ek.Identity(), ProviderID: providerID})
	}
	return out
}

func (c *credentialTo) vector() *vector.Credential {
	return &vector.Credential{Challenge: forge.Change(forge.Must(c.challenge.Marshal()), c.onChallenge), EK: forge.Must(x509.MarshalPKCS8PrivateKey(c.ek)), AKName: c.akName}
}

// credentials are about a credential's own bytes, for a TPM whose EK is known.
func (w *world) credentials() {
	p256, p384 := forge.ECKey(elliptic.P256(), "EK with credentials P-256", nil), forge.ECKey(elliptic.P384(), "EK with credentials P-384", nil)
	rsa2048, rsa3072 := forge.RSAKey(2048, "EK with credentials RSA"), forge.RSAKey(3072, "EK with credentials RSA-3072")
	for _, k := range []struct {
		name string
		ek   crypto.Signer
	}{{"p256", p256}, {"p384", p384}, {"rsa2048", rsa2048}, {"rsa3072", rsa3072}} {
		c := w.credentialFor(k.ek)
		w.add(&vector.Vector{Name: "credential-" + k.name, Class: "accepted", Level: vector.LevelCredential,
			Description: "A credential opens with the EK and the AK's Name that it is for.", Credential: c.vector(), Result: &vector.Result{Secret: c.secret}})
	}
	for _, k := range []struct {
		name  string
		ek    crypto.Signer
		other crypto.Signer // another EK of the same kind
		cases []credentialCase
	}{
		{"p256", p256, forge.ECKey(elliptic.P256(), "another EK with credentials", nil), append(idObjectCases(32), w.pointCases(p256)...)},
		{"p384", p384, forge.ECKey(elliptic.P384(), "another EK with credentials", nil), append(idObjectCases(48), w.pointCases(p384)...)},
		{"rsa2048", rsa2048, forge.RSAKey(2048, "another EK with credentials"), append(idObjectCases(32), ciphertextCases()...)},
		{"rsa3072", rsa3072, nil, append(idObjectCases(48), ciphertextCases()...)},
	} {
		add := func(name, what, expect, pkg string, c *credentialTo) {
			v := &vector.Vector{Name: "credential-" + k.name + "-" + name, Class: "binding", Level: vector.LevelCredential, Description: what,
				Expect: expect, Package: pkg, Credential: c.vector()}
			if expect == "" {
				v.Class, v.Package, v.Result = "accepted", "", &vector.Result{Secret: c.secret}
			}
			w.add(v)
		}
		for _, a := range k.cases {
			c := w.credentialFor(k.ek)
			a.change(c.challenge.Credential)
			add(a.name, a.what, a.expect, vector.PackageTPM, c)
		}
		w.credentialsElsewhere(k.ek, k.other, add)
		if k.ek == p256 {
			w.credentialFrames(k.ek, add)
		}
	}
}

// credentialCase is a change of the credential's parts.
type credentialCase struct {
	name, what, expect string
	change             func(*message.Credential)
}

// idObjectCases change the idObject, of which the HMAC has that size.
func idObjectCases(mac int) []credentialCase {
	return []credentialCase{
		{"hmac-bit", "One bit of the HMAC was changed.", "credential-integrity", func(c *message.Credential) { c.IDObject[2] ^= 1 }},
		{"hmac-last-bit", "The last bit of the HMAC was changed.", "credential-integrity", func(c *message.Credential) { c.IDObject[1+mac] ^= 1 }},
		{"identity-bit", "One bit of the encrypted identity was changed, in the size of the secret.", "credential-integrity", func(c *message.Credential) { c.IDObject[2+mac] ^= 1 }},
		{"identity-last-bit", "The last bit of the encrypted identity was changed.", "credential-integrity", func(c *message.Credential) { c.IDObject[len(c.IDObject)-1] ^= 1 }},
		{"identity-truncated", "The encrypted identity lacks its last byte.", "credential-integrity", func(c *message.Credential) { c.IDObject = c.IDObject[:len(c.IDObject)-1] }},
		{"identity-extended", "A byte stands behind the encrypted identity.", "credential-integrity", func(c *message.Credential) { c.IDObject = append(c.IDObject, 0) }},
		{"identity-absent", "There is no encrypted identity.", "credential-integrity", func(c *message.Credential) { c.IDObject = c.IDObject[:2+mac] }},
		{"hmac-absent", "The HMAC is empty, its size says so.", "credential-integrity", func(c *message.Credential) { c.IDObject = append([]byte{0, 0}, c.IDObject[2+mac:]...) }},
		{"hmac-truncated", "The HMAC lacks its last byte, its size says so.", "credential-integrity",
			func(c *message.Credential) {
				c.IDObject = slices.Concat([]byte{0, byte(mac - 1)}, c.IDObject[2:1+mac], c.IDObject[2+mac:])
			}},
		{"hmac-too-long", "The HMAC's size is one more than a digest's, so that it takes in the identity's first byte.", "credential-size", func(c *message.Credential) { c.IDObject[1]++ }},
		{"hmac-size-over-the-end", "The HMAC's size says more bytes than there are.", "credential-size", func(c *message.Credential) { c.IDObject[0] = 1 }},
		{"id-object-of-a-byte", "The idObject is one byte.", "credential-size", func(c *message.Credential) { c.IDObject = c.IDObject[:1] }},
	}
}

// ciphertextCases change the RSA ciphertext of the seed.
func ciphertextCases() []credentialCase {
	return []credentialCase{
		{"seed-bit", "One bit of the encrypted seed was changed.", "credential-seed", func(c *message.Credential) { c.EncryptedSecret[100] ^= 1 }},
		{"seed-truncated", "The encrypted seed lacks its last byte.", "credential-size", func(c *message.Credential) { c.EncryptedSecret = c.EncryptedSecret[:len(c.EncryptedSecret)-1] }},
		{"seed-extended", "A byte stands behind the encrypted seed.", "credential-size", func(c *message.Credential) { c.EncryptedSecret = append(c.EncryptedSecret, 0) }},
		{"seed-with-a-zero-in-front", "A zero byte stands in front of the encrypted seed.", "credential-size", func(c *message.Credential) { c.EncryptedSecret = append([]byte{0}, c.EncryptedSecret...) }},
		{"seed-over-the-modulus", "The encrypted seed is all ones, more than the modulus.", "credential-seed",
			func(c *message.Credential) { c.EncryptedSecret = bytes.Repeat([]byte{0xff}, len(c.EncryptedSecret)) }},
		{"seed-one", "The encrypted seed is 1.", "credential-seed", func(c *message.Credential) { clear(c.EncryptedSecret); c.EncryptedSecret[len(c.EncryptedSecret)-1] = 1 }},
	}
}

// pointCases change the ephemeral key that the seed is agreed on with.
func (w *world) pointCases(ek *ecdsa.PrivateKey) []credentialCase {
	width := (ek.Params().BitSize + 7) / 8
	sized := func(b []byte) []byte { return append([]byte{0, byte(len(b))}, b...) }
	point := func(xy []byte) []byte { return slices.Concat(sized(xy[:width]), sized(xy[width:])) }
	other := forge.Must(forge.ECKey(ek.Curve, "another ephemeral key", nil).PublicKey.Bytes())[1:]
	return []credentialCase{
		{"point-off-the-curve", "The ephemeral key is not on the curve.", "credential-point", func(c *message.Credential) { c.EncryptedSecret[len(c.EncryptedSecret)-1] ^= 1 }},
		{"point-at-infinity", "The ephemeral key is (0, 0).", "credential-point", func(c *message.Credential) { c.EncryptedSecret = point(make([]byte, 2*width)) }},
		{"point-over-the-field", "The ephemeral key's x is over the field's prime.", "credential-point",
			func(c *message.Credential) { copy(c.EncryptedSecret[2:], bytes.Repeat([]byte{0xff}, width)) }},
		{"point-negated", "The ephemeral key's y was negated, which changes no shared secret: the credential opens still, and S is what it was.", "",
			func(c *message.Credential) {
				y := new(big.Int).SetBytes(c.EncryptedSecret[4+width:])
				y.Sub(ek.Params().P, y).FillBytes(c.EncryptedSecret[4+width:])
			}},
		{"point-of-somebody-else", "The ephemeral key is another one.", "credential-integrity", func(c *message.Credential) { c.EncryptedSecret = point(other) }},
		{"point-truncated", "The ephemeral key lacks its last byte.", "credential-size", func(c *message.Credential) { c.EncryptedSecret = c.EncryptedSecret[:len(c.EncryptedSecret)-1] }},
		{"point-extended", "A byte stands behind the ephemeral key.", "credential-size", func(c *message.Credential) { c.EncryptedSecret = append(c.EncryptedSecret, 0) }},
		{"point-with-empty-coordinates", "The ephemeral key has coordinates of no bytes.", "credential-size", func(c *message.Credential) { c.EncryptedSecret = make([]byte, 4) }},
		{"point-as-an-rsa-seed", "An RSA ciphertext stands in place of the ephemeral key.", "credential-size",
			func(c *message.Credential) { c.EncryptedSecret = bytes.Repeat([]byte{0x5a}, 256) }},
	}
}

// credentialsElsewhere are credentials that reach another TPM or AK than they are for,
// or are made with the parameters of another kind of EK.
func (w *world) credentialsElsewhere(ek, other crypto.Signer, add func(name, what, expect, pkg string, c *credentialTo)) {
	seed := "credential-integrity"
	if _, isRSA := ek.(*rsa.PrivateKey); isRSA {
		seed = "credential-seed"
	}
	c := w.credentialFor(ek)
	c.akName = w.AKOther.Public.Name()
	add("for-another-ak", "The credential is for another AK than the TPM has loaded.", "credential-integrity", vector.PackageTPM, c)
	c = w.credentialFor(ek)
	c.challenge.Credential.IDObject = w.credentialFor(ek).challenge.Credential.IDObject
	add("of-two-halves", "The idObject of one credential stands beside the seed of another, both for this EK and AK.", "credential-integrity", vector.PackageTPM, c)
	if other != nil {
		c = w.credentialFor(other)
		c.ek = ek
		add("for-another-ek", "The credential is for another EK of the same kind.", seed, vector.PackageTPM, c)
	}
	c = w.credentialFor(ek)
	c.challenge.Credential = otherParameters(ek.Public(), c.akName, c.secret)
	expect := seed
	if len(c.challenge.Credential.IDObject) == 2+48+34 {
		expect = "credential-size" // the HMAC is longer than this EK's
	}
	add("with-other-parameters", "The credential was made with the hash and the AES key size of the other kind of EK, as a node could have asked for.",
		expect, vector.PackageTPM, c)
}

// otherParameters makes a credential with SHA-384 and AES-256 for an EK whose are
// SHA-256 and AES-128, and the reverse.
func otherParameters(ek crypto.PublicKey, akName, secret []byte) *message.Credential {
	area := &tpm2.TPMTPublic{NameAlg: tpm2.TPMAlgSHA384}
	bits := tpm2.TPMKeyBits(256)
	if k, ok := ek.(*rsa.PublicKey); ok && k.N.BitLen() == 3072 || !ok && ek.(*ecdsa.PublicKey).Curve == elliptic.P384() {
		area.NameAlg, bits = tpm2.TPMAlgSHA256, 128
	}
	cipher := tpm2.TPMTSymDefObject{Algorithm: tpm2.TPMAlgAES, KeyBits: tpm2.NewTPMUSymKeyBits(tpm2.TPMAlgAES, bits),
		Mode: tpm2.NewTPMUSymMode(tpm2.TPMAlgAES, tpm2.TPMAlgCFB)}
	switch k := ek.(type) {
	case *rsa.PublicKey:
		area.Type = tpm2.TPMAlgRSA
		area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgRSA, &tpm2.TPMSRSAParms{Symmetric: cipher, KeyBits: tpm2.TPMKeyBits(k.N.BitLen())})
		area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgRSA, &tpm2.TPM2BPublicKeyRSA{Buffer: k.N.Bytes()})
	case *ecdsa.PublicKey:
		point := forge.Must(k.Bytes())[1:]
		curve := map[elliptic.Curve]tpm2.TPMECCCurve{elliptic.P256(): tpm2.TPMECCNistP256, elliptic.P384(): tpm2.TPMECCNistP384}[k.Curve]
		area.Type = tpm2.TPMAlgECC
		area.Parameters = tpm2.NewTPMUPublicParms(tpm2.TPMAlgECC, &tpm2.TPMSECCParms{Symmetric: cipher, CurveID: curve})
		area.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgECC, &tpm2.TPMSECCPoint{X: tpm2.TPM2BECCParameter{Buffer: point[:len(point)/2]},
			Y: tpm2.TPM2BECCParameter{Buffer: point[len(point)/2:]}})
	}
	c := &message.Credential{}
	var err error
	c.IDObject, c.EncryptedSecret, err = tpm2.CreateCredential(rand.Reader, forge.Must(tpm2.ImportEncapsulationKey(area)), akName, secret)
	forge.Check(err)
	return c
}

// credentialFrames are challenges whose DER around the credential is at fault.
func (w *world) credentialFrames(ek crypto.Signer, add func(name, what, expect, pkg string, c *credentialTo)) {
	for _, a := range []struct {
		name, what, expect string
		change             func([]byte) []byte
	}{
		{"frame-without-seed", "The challenge has no encryptedSecret.", "message-encoding", forge.Replaced(1, func(e []byte) []byte { return forge.TLV(0xa1, forge.Elements(e)[0]) })},
		{"frame-with-a-part-behind", "A third part stands behind the encryptedSecret.", "message-encoding",
			forge.Replaced(1, func(e []byte) []byte { return forge.TLV(0xa1, append(forge.Elements(e), forge.TLV(4, []byte{0}))...) })},
		{"frame-with-empty-id-object", "The idObject is empty.", "message-encoding", forge.Replaced(1, func(e []byte) []byte { return forge.TLV(0xa1, forge.TLV(4), forge.Elements(e)[1]) })},
		{"frame-with-a-huge-seed", "The encryptedSecret has 1025 bytes.", "message-encoding",
			forge.Replaced(1, func(e []byte) []byte { return forge.TLV(0xa1, forge.Elements(e)[0], forge.TLV(4, make([]byte, 1025))) })},
		{"frame-with-the-secret-in-clear", "A secret in clear stands in place of the credential.", "message-encoding", forge.Replaced(1, forge.With(forge.TLV(0x80, make([]byte, 32))...))},
	} {
		c := w.credentialFor(ek)
		c.onChallenge = a.change
		add(a.name, a.what, a.expect, vector.PackageAttest, c)
	}
}
