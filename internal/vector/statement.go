package vector

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/forge"
)

// verify gives the statement to statement.VerifyCertify.
func (s *Statement) verify() (*Result, error) {
	e := &statement.CertifyEvidence{Attest: s.Attest, Signature: s.Signature, Public: s.Public, RawSignature: s.RawSignature.scheme()}
	o := statement.CertifyOptions{QualifyingData: s.QualifyingData, AK: akOf(s.AKTrust, s.AKPublic, s.AKKey), Key: publicKey(s.Key)}
	for _, name := range s.Options {
		forge.Check(setOption(&o, name))
	}
	c, err := statement.VerifyCertify(e, o)
	if err != nil {
		return nil, err
	}
	return &Result{TPMResident: &c.TPMResident}, nil
}

// akOf is the AK of a vector, with the trust that it names: of a credential where it has
// the public area alone and names none, and else of an issuer.
func akOf(trust string, public, spki []byte) statement.AK {
	key := publicKey(spki)
	if trust == "" && key == nil && public == nil {
		return statement.AK{}
	}
	if trust == "" {
		trust = string(statement.AKByIssuer)
		if key == nil {
			trust = string(statement.AKByCredential)
		}
	}
	return named("akTrust", trust, map[string]statement.AK{
		string(statement.AKBySender):     statement.InsecureAKFromSender(key, public),
		string(statement.AKByCredential): statement.AKFromCredential(public),
		string(statement.AKByIssuer):     statement.AKFromIssuer(key, public),
	})
}

// scheme is nil where a signature is not bare.
func (r *RawSignature) scheme() *statement.RawScheme {
	if r == nil {
		return nil
	}
	return &statement.RawScheme{
		Alg: named("scheme", r.Scheme, map[string]tpm2.TPMAlgID{"rsassa": tpm2.TPMAlgRSASSA, "rsapss": tpm2.TPMAlgRSAPSS, "ecdsa": tpm2.TPMAlgECDSA}),
		Hash: named("hash", r.Hash, map[string]tpm2.TPMAlgID{
			"sha1": tpm2.TPMAlgSHA1, "sha256": tpm2.TPMAlgSHA256, "sha384": tpm2.TPMAlgSHA384, "sha512": tpm2.TPMAlgSHA512}),
	}
}

// setOption sets the boolean field of that name, which is in camel case or as in Go.
func setOption(options any, name string) error {
	if name != "" {
		field := reflect.ValueOf(options).Elem().FieldByName(strings.ToUpper(name[:1]) + name[1:])
		if field.IsValid() && field.Kind() == reflect.Bool {
			field.SetBool(true)
			return nil
		}
	}
	return fmt.Errorf("unknown option %q", name)
}
