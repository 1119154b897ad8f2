package vector

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
)

// verify gives the statement to statement.VerifyCertify.
func (s *Statement) verify() (*Result, error) {
	e := &statement.CertifyEvidence{Attest: s.Attest, Signature: s.Signature, Public: s.Public}
	if s.RawSignature != nil {
		scheme, err := s.RawSignature.scheme()
		if err != nil {
			return nil, &brokenVector{err}
		}
		e.RawSignature = scheme
	}
	o := &statement.CertifyOptions{QualifyingData: s.QualifyingData}
	var err error
	if o.AK, err = akOf(s.AKTrust, s.AKPublic, s.AKKey); err != nil {
		return nil, &brokenVector{err}
	}
	if o.Key, err = publicKey(s.Key); err != nil {
		return nil, &brokenVector{err}
	}
	for _, name := range s.Options {
		if err := setOption(o, name); err != nil {
			return nil, &brokenVector{err}
		}
	}
	c, err := statement.VerifyCertify(e, o)
	if err != nil {
		return nil, err
	}
	return &Result{TPMResident: &c.TPMResident}, nil
}

// akOf is the AK of a vector, with the trust that it names: of a credential where it has
// the public area alone and names none, and else of an issuer.
func akOf(trust string, public, spki []byte) (statement.AK, error) {
	key, err := publicKey(spki)
	if err != nil {
		return statement.AK{}, err
	}
	switch {
	case trust == "" && key == nil && public == nil:
		return statement.AK{}, nil
	case trust == string(statement.AKBySender):
		return statement.InsecureAKFromSender(key, public), nil
	case trust == string(statement.AKByCredential), trust == "" && key == nil:
		return statement.AKFromCredential(public), nil
	case trust == string(statement.AKByIssuer), trust == "":
		return statement.AKFromIssuer(key, public), nil
	}
	return statement.AK{}, fmt.Errorf("akTrust %q", trust)
}

func (r *RawSignature) scheme() (*statement.RawScheme, error) {
	alg, okAlg := map[string]tpm2.TPMAlgID{
		"rsassa": tpm2.TPMAlgRSASSA, "rsapss": tpm2.TPMAlgRSAPSS, "ecdsa": tpm2.TPMAlgECDSA,
	}[r.Scheme]
	hash, okHash := map[string]tpm2.TPMAlgID{
		"sha1": tpm2.TPMAlgSHA1, "sha256": tpm2.TPMAlgSHA256, "sha384": tpm2.TPMAlgSHA384, "sha512": tpm2.TPMAlgSHA512,
	}[r.Hash]
	if !okAlg || !okHash {
		return nil, fmt.Errorf("raw signature %s/%s", r.Scheme, r.Hash)
	}
	return &statement.RawScheme{Alg: alg, Hash: hash}, nil
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
