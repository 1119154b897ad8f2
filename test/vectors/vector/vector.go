// Package vector reads and replays the test vectors of this module: one JSON file for each
// attack on a node's request, made from good evidence by changing one thing, with the check
// that must refuse it. The files, and how to read them in other languages, are described in
// the README.md of module vectors.
//
//	set, err := vector.Load(vector.Committed())
//	for _, v := range set.Vectors {
//		err := v.Replay(ctx, &set.Environment) // nil: as expected
//	}
package vector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/vectors"
)

// The levels say which function a vector is for.
const (
	// LevelVerify is attest.Verifier.Verify on the request object of an answer.
	LevelVerify = "verify"
	// LevelChallenge is attest.Verifier.Challenge on the request object of a hello.
	LevelChallenge = "challenge"
	// LevelNode is attest.Attester.Answer: does the node go on to certify its key?
	LevelNode = "node"
	// LevelStatement is statement.VerifyCertify on one certify statement.
	LevelStatement = "statement"
	// LevelRequest is csr.Policy.Check on a request object.
	LevelRequest = "request"
	// LevelBundle is csr.Parse or csr.ParseProposal on PEM.
	LevelBundle = "bundle"
	// LevelProviderID is oid.ParseProviderID on a list of extensions.
	LevelProviderID = "providerID"
	// LevelGCEInstance is oid.ParseGCEInstance on an extension's value.
	LevelGCEInstance = "gceInstance"
	// LevelQuote is statement.VerifyQuote on one quote.
	LevelQuote = "quote"
	// LevelEK is tpmcert.EKVerifier.Verify on an EK and its certificates.
	LevelEK = "ek"
	// LevelCredential is TPM2_ActivateCredential, by a TPM whose EK is known.
	LevelCredential = "credential"
	// LevelRegistry is a list of calls to a membership.Registry.
	LevelRegistry = "registry"
	// LevelToken is jws.VerifySignature on a token.
	LevelToken = "token"
	// LevelSigner is extsigner.Service.Sign on a claim set.
	LevelSigner = "signer"
	// LevelBoot is statement.VerifyQuote on a quote, then eventlog.BootPolicy.CheckQuote on it and
	// its event log.
	LevelBoot = "boot"
)

// Classes returns the classes of vectors, each a folder of its own.
func Classes() []string {
	return []string{"accepted", "binding", "boot", "certificate", "request", "statement", "token"}
}

// Object is a request object as an API server returned it.
type Object struct{ *csr.Request }

// UnmarshalJSON reads the object.
func (o *Object) UnmarshalJSON(text []byte) (err error) {
	o.Request, err = csr.ParseServerObject(text)
	return err
}

// Vector is one file. Exactly the input of its level is set.
type Vector struct {
	// Name is the file's name without its extension: it names the change.
	Name string `json:"name"`
	// Class is the folder's name, one of Classes.
	Class string `json:"class"`
	// Description says the attacker's change in one sentence.
	Description string `json:"description"`
	// Level is one of the constants above.
	Level string `json:"level"`
	// Expect is the stable name of the check that refuses, "" for acceptance.
	Expect string `json:"expect"`
	// Cause is the check that underlies Expect, if Expect says little: which
	// of the registry's rules is behind "not-a-member".
	Cause string `json:"cause,omitempty"`
	// Also are other rules of package csr that the same change breaks: a policy reports every
	// violation, and these and Expect must be all of them.
	Also []string `json:"also,omitempty"`
	// Retry says that the refusal is not final: the request is examined again.
	Retry bool `json:"retry,omitempty"`
	// Result is what acceptance must report, as far as it is set.
	Result *Result `json:"result,omitempty"`
	// Environment replaces members of the common environment, each in its entirety.
	Environment *Environment `json:"environment,omitempty"`

	// Object is the input of LevelVerify, LevelChallenge and LevelRequest.
	Object *Object `json:"object,omitempty"`
	// TargetSigner is the signer that a hello states, for LevelRequest; "" means
	// the one that the object is filed under.
	TargetSigner string `json:"targetSigner,omitempty"`
	// Node is the input of LevelNode.
	Node *Node `json:"node,omitempty"`
	// Statement is the input of LevelStatement.
	Statement *Statement `json:"statement,omitempty"`
	// Bundle is the input of LevelBundle.
	Bundle *Bundle `json:"bundle,omitempty"`
	// Extensions is the input of LevelProviderID.
	Extensions []Extension `json:"extensions,omitzero"`
	// Value is the input of LevelGCEInstance, in DER.
	Value []byte `json:"value,omitempty"`
	// Quote is the input of LevelQuote.
	Quote *Quote `json:"quote,omitempty"`
	// EK is the input of LevelEK.
	EK *EK `json:"ek,omitempty"`
	// Credential is the input of LevelCredential.
	Credential *Credential `json:"credential,omitempty"`
	// Registry is the input of LevelRegistry. Expect is that of the last operation.
	Registry []Operation `json:"registry,omitempty"`
	// Token is the input of LevelToken.
	Token *Token `json:"token,omitempty"`
	// Signer is the input of LevelSigner.
	Signer *Signer `json:"signer,omitempty"`
	// Boot is the input of LevelBoot.
	Boot *Boot `json:"boot,omitempty"`
}

// Result is the result for an accepted input. A member that is not set is not compared.
type Result struct {
	// NodeName is the node that the request is for.
	NodeName string `json:"nodeName,omitempty"`
	// Machine is the canonical identity. For LevelGCEInstance it is that of the
	// instance.
	Machine string `json:"machine,omitempty"`
	// Profile is the name of the issuer's profile.
	Profile string `json:"profile,omitempty"`
	// ProviderID is the one vouched for; for LevelProviderID the one read.
	ProviderID string `json:"providerID,omitempty"`
	// TPMResident says whether the certified key is shown to live in the TPM.
	TPMResident *bool `json:"tpmResident,omitempty"`
	// Binding is the DER of the binding in the challenge for a hello, except for the nonce,
	// which the verifier draws. The secret must be the one derived from the binding with the
	// verifier's own nonce.
	Binding []byte `json:"binding,omitempty"`
	// ClockTrusted says whether a quote's counts are the TPM's own numbers, and Value is that
	// of the requested PCR.
	ClockTrusted *bool  `json:"clockTrusted,omitempty"`
	Value        []byte `json:"value,omitempty"`
	// Source says what made an EK trusted, and Tolerances which of the profile's were needed;
	// a list that is present and empty means none.
	Source     string   `json:"source,omitempty"`
	Tolerances []string `json:"tolerances,omitzero"`
	// Secret is the secret in a credential.
	Secret []byte `json:"secret,omitempty"`
}

// Node is a node that is asked to answer a challenge.
type Node struct {
	// Challenge is DER.
	Challenge []byte `json:"challenge"`
	// Request, SignerName, ClusterID and ExpirationSeconds are the node's own values.
	Request           []byte `json:"request"`
	SignerName        string `json:"signerName"`
	ClusterID         string `json:"clusterID"`
	ExpirationSeconds int32  `json:"expirationSeconds,omitempty"`
	// AKPublic is the TPMT_PUBLIC of the node's AK.
	AKPublic []byte `json:"akPublic"`
	// Key is the private key to certify, PKCS#8.
	Key []byte `json:"key"`
}

// Statement is one certify statement and the expectations of it.
type Statement struct {
	// Attest is a TPMS_ATTEST, Signature a TPMT_SIGNATURE unless RawSignature is set, Public a
	// TPMT_PUBLIC, all without an outer size.
	Attest    []byte `json:"attest"`
	Signature []byte `json:"signature"`
	Public    []byte `json:"public"`
	// RawSignature says how to read a bare signature.
	RawSignature *RawSignature `json:"rawSignature,omitempty"`
	// AKPublic is the AK's TPMT_PUBLIC, AKKey its SubjectPublicKeyInfo: one or both.
	AKPublic []byte `json:"akPublic,omitempty"`
	AKKey    []byte `json:"akKey,omitempty"`
	// AKTrust says where the trust in the AK comes from: "credential", "issuer" or "sender".
	// If absent, it is a credential if there is only AKPublic, otherwise an issuer.
	AKTrust string `json:"akTrust,omitempty"`
	// QualifyingData is the data that the statement must contain; null for a caller that supplies none.
	QualifyingData []byte `json:"qualifyingData"`
	// Key is the SubjectPublicKeyInfo of the key that must have been certified; null for a
	// caller that supplies none.
	Key []byte `json:"key"`
	// Options are names of fields of statement.CertifyOptions that are set, in camel
	// case, such as "requireTPMResident".
	Options []string `json:"options,omitempty"`
}

// RawSignature names the scheme (rsassa, rsapss, ecdsa) and the hash (sha1, sha256, sha384,
// sha512) of a bare signature.
type RawSignature struct {
	Scheme string `json:"scheme"`
	Hash   string `json:"hash"`
}

// Bundle is the PEM of a request.
type Bundle struct {
	// Format is "" for the SDK's own, or "proposal".
	Format string `json:"format,omitempty"`
	// PEM is the text, in base64 like all bytes: its line endings matter.
	PEM []byte `json:"pem"`
}

// Extension is an X.509 extension.
type Extension struct {
	// ID is dotted decimal; Critical is the extension's flag.
	ID       string `json:"id"`
	Critical bool   `json:"critical,omitempty"`
	// Value is the content of extnValue.
	Value []byte `json:"value"`
}

// Set is the contents of a folder of vectors.
type Set struct {
	// Environment is what all vectors share.
	Environment Environment
	// Vectors are sorted by class and name.
	Vectors []*Vector
}

// EnvironmentFile contains the common Environment. It stands next to the folders of the classes.
const EnvironmentFile = "environment.json"

// Committed is the folder of vectors in module vectors.
func Committed() fs.FS { return forge.Must(fs.Sub(vectors.FS, "data")) }

// Load reads a folder of vectors. It fails on a folder or a class that is missing or
// empty, on a file that does not belong there, and on a vector that has an unknown member, a
// name that is not its file's, or an input that is not its level's: a vector that no test
// replays protects nothing.
func Load(folder fs.FS) (*Set, error) {
	set := &Set{}
	if err := readJSON(folder, EnvironmentFile, &set.Environment); err != nil {
		return nil, err
	}
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		class, file := path.Split(name)
		switch isDir := err == nil && entry.IsDir(); {
		case err != nil:
			return fmt.Errorf("vector: %w", err)
		case isDir && slices.Contains(append(Classes(), "."), name), name == EnvironmentFile:
			return nil
		case isDir || class == "" || path.Ext(file) != ".json":
			return fmt.Errorf("vector: %s: does not belong there", name)
		}
		v, err := loadVector(folder, name, path.Clean(class), strings.TrimSuffix(file, ".json"))
		set.Vectors = append(set.Vectors, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, class := range Classes() {
		if !slices.ContainsFunc(set.Vectors, func(v *Vector) bool { return v.Class == class }) {
			return nil, fmt.Errorf("vector: class %s is empty", class)
		}
	}
	return set, nil
}

func loadVector(folder fs.FS, file, class, name string) (*Vector, error) {
	v := &Vector{}
	if err := readJSON(folder, file, v); err != nil {
		return nil, err
	}
	if v.Name != name || v.Class != class {
		return nil, fmt.Errorf("vector: %s: it calls itself %s/%s", file, v.Class, v.Name)
	}
	if err := v.check(); err != nil {
		return nil, fmt.Errorf("vector: %s: %w", file, err)
	}
	return v, nil
}

// readJSON reads one JSON value, with no unknown member and nothing after it.
func readJSON(folder fs.FS, file string, out any) error {
	data, err := fs.ReadFile(folder, file)
	if err != nil {
		return fmt.Errorf("vector: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return fmt.Errorf("vector: %s: %w", file, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("vector: %s: something after the JSON value", file)
	}
	return nil
}

// check refuses a vector that contradicts itself.
func (v *Vector) check() error {
	all := levels()
	want, ok := all[v.Level]
	if !ok {
		return fmt.Errorf("unknown level %q", v.Level)
	}
	for _, l := range all {
		if set := !reflect.ValueOf(v).Elem().FieldByName(l.input).IsZero(); set != (l.input == want.input) {
			return fmt.Errorf("level %s: the input must be %s alone", v.Level, want.input)
		}
	}
	if err := v.checkExpectation(); err != nil {
		return err
	}
	if v.Environment != nil && v.Environment.FirstUse != nil && len(v.Environment.FirstUse.History) > 0 {
		if err := checkOperations(v.Environment.FirstUse.History, "", false); err != nil {
			return err
		}
	}
	if v.Level == LevelRegistry {
		return checkOperations(v.Registry, v.Expect, v.Retry)
	}
	return nil
}

func (v *Vector) checkExpectation() error {
	switch {
	case v.Description == "":
		return errors.New("no description")
	case v.TargetSigner != "" && v.Level != LevelRequest:
		return errors.New("targetSigner is for level request")
	case v.Expect == "" && (v.Cause != "" || v.Also != nil || v.Retry):
		return errors.New("it expects acceptance and something else")
	case v.Expect != "" && v.Result != nil:
		return errors.New("it expects a refusal and a result")
	case (v.Expect == "") != (v.Class == "accepted"):
		return fmt.Errorf("class %s expects %q", v.Class, v.Expect)
	}
	return nil
}
