// Package softak makes attestation keys in software: they sign whatever a test or an attack asks
// for, so that every signature is valid and the attacked property decides. What fails panics.
package softak

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	_ "crypto/sha1"
	"encoding/asn1"
	"math/big"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// The attributes of an attestation key, and of a key that lives in a TPM.
const (
	AKAttributes = statement.AttributeFixedTPM | statement.AttributeFixedParent | statement.AttributeSensitiveDataOrigin |
		statement.AttributeUserWithAuth | statement.AttributeRestricted | statement.AttributeSign
	ResidentAttributes = AKAttributes &^ statement.AttributeRestricted
)

// The schemes of attestation keys. NoScheme is that of a key for any.
var (
	NoScheme = statement.KeyScheme{Alg: tpm2.TPMAlgNull}
	RSASSA   = statement.KeyScheme{Alg: tpm2.TPMAlgRSASSA, Hash: tpm2.TPMAlgSHA256}
	ECDSA    = statement.KeyScheme{Alg: tpm2.TPMAlgECDSA, Hash: tpm2.TPMAlgSHA256}
)

// PublicArea is the public area of a key, parsed, so with Raw set.
func PublicArea(key crypto.PublicKey, attributes statement.Attributes, scheme statement.KeyScheme) *statement.Public {
	p := &statement.Public{NameAlg: tpm2.TPMAlgSHA256, Attributes: attributes, Scheme: scheme,
		Symmetric: statement.SymmetricScheme{Alg: tpm2.TPMAlgNull}}
	switch k := key.(type) {
	case *rsa.PublicKey:
		p.Type, p.KeyBits, p.Modulus = tpm2.TPMAlgRSA, uint16(k.Size()*8), k.N.Bytes()
		if k.E != 65537 {
			p.Exponent = uint32(k.E)
		}
	case *ecdsa.PublicKey:
		point := testkit.Must(k.Bytes())
		half := len(point) / 2
		p.Type, p.KDF, p.X, p.Y = tpm2.TPMAlgECC, NoScheme, point[1:1+half], point[1+half:]
		p.Curve = map[elliptic.Curve]tpm2.TPMECCCurve{elliptic.P256(): tpm2.TPMECCNistP256,
			elliptic.P384(): tpm2.TPMECCNistP384, elliptic.P521(): tpm2.TPMECCNistP521}[k.Curve]
	}
	return reparsed(p)
}

func reparsed(p *statement.Public) *statement.Public {
	return testkit.Must(statement.ParsePublic(testkit.Must(p.Marshal())))
}

// Changed is a copy of p with one change.
func Changed(p *statement.Public, how func(*statement.Public)) *statement.Public {
	again := *p
	how(&again)
	return reparsed(&again)
}

// An AK is an attestation key in software, which signs what no TPM would sign.
type AK struct {
	Private crypto.Signer
	Public  *statement.Public
}

// NewAK is an attestation key with this private part.
func NewAK(private crypto.Signer, scheme statement.KeyScheme) *AK {
	return &AK{Private: private, Public: PublicArea(private.Public(), AKAttributes, scheme)}
}

// Sign signs with any scheme that fits the key. An ECDSA signature repeats: nothing random goes in.
func (k *AK) Sign(scheme statement.KeyScheme, message []byte) *statement.Signature {
	hash := testkit.Must(scheme.Hash.Hash())
	var opts crypto.SignerOpts = hash
	if scheme.Alg == tpm2.TPMAlgRSAPSS {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	out := testkit.Must(crypto.SignMessage(k.Private, nil, message, opts))
	v := &statement.Signature{Alg: scheme.Alg, Hash: scheme.Hash}
	if scheme.Alg != tpm2.TPMAlgECDSA {
		v.RSA = out
		return v
	}
	r, s := Split(out)
	v.R, v.S = r.Bytes(), s.Bytes()
	return v
}

// Split takes the two numbers out of an ECDSA signature in DER.
func Split(der []byte) (r, s *big.Int) {
	var v struct{ R, S *big.Int }
	testkit.Must(asn1.Unmarshal(der, &v))
	return v.R, v.S
}

// Primary is the Qualified Name of the key as a primary key of the endorsement hierarchy.
func (k *AK) Primary() []byte {
	return statement.QualifiedNameOfPrimary(tpm2.TPMRHEndorsement, k.Public.Name())
}
