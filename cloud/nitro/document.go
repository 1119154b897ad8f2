package nitro

import (
	"crypto/x509"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

// Limits on a document's fields.
const (
	maxField        = 1024 // bytes, also of one certificate
	maxCertificates = 5    // in cabundle
	maxModuleID     = 128
	pcrSize         = 48 // SHA-384
	maxPCRs         = 32
	maxMilliseconds = 253402300799999 // 9999-12-31T23:59:59.999Z
)

// Checks on the subject of a document.
const (
	// checkEnclave: it is a document of a Nitro Enclave. Those have the same root, and
	// every customer of AWS can get them over any nonce.
	checkEnclave refusal.Check = "nitro-document-kind"
	// checkModule: its module_id is not that of an instance's NitroTPM, or not that of the
	// certificate that signs.
	checkModule refusal.Check = "nitro-module"
)

// Document is what an attestation document of a NitroTPM says ("NitroTPM attestation
// document contents" in the documentation of Amazon EC2).
type Document struct {
	// ModuleID is the whole module_id, such as i-05473b8eb5f575457-tpm0000000000000000,
	// and InstanceID its first part.
	ModuleID, InstanceID string
	// Region and Partition are where the instance is, such as us-east-2 and aws. They come
	// from the name in the certificate: the document itself has neither.
	Region, Partition string
	// Timestamp is when the document was made, in whole milliseconds.
	Timestamp time.Time
	// PCRs are the values of the PCRs by index, 48 bytes each (SHA-384). A missing index has
	// no value.
	PCRs map[int][]byte
	// PublicKey, UserData and Nonce are the caller's, at most 1024 bytes each; nil
	// if it supplied none.
	PublicKey, UserData, Nonce []byte
	// Chain is the chain of the certificate that signed, leaf first and root last; nil if
	// nothing was verified.
	Chain []*x509.Certificate

	envelope sign1
	leaf     *x509.Certificate
	enclave  bool     // the PCRs are an enclave's
	cabundle [][]byte // the root first, DER
	signer   []byte   // the certificate, DER
}

// parseInsecure reads a document and verifies only its form: whatever it says may be forged.
// The error is a [*refusal.Error] with the check "nitro-document-encoding",
// "nitro-document-algorithm", "nitro-document-kind" or "nitro-module".
func parseInsecure(document []byte) (*Document, error) {
	d, err := parse(document)
	if err != nil {
		return nil, err
	}
	if err := d.refuseEnclave(); err != nil {
		return nil, err
	}
	return d, nil
}

// parse reads the document of a NitroTPM or an enclave.
func parse(document []byte) (*Document, error) {
	d := &Document{}
	var err error
	if d.envelope, err = readSign1(document); err != nil {
		return nil, err
	}
	if err := d.readPayload(); err != nil {
		return nil, err
	}
	if d.leaf, err = chain.Parse(d.signer); err != nil {
		return nil, &refusal.Error{Check: checkEncoding, Got: "a bad certificate", Want: "X.509", Err: err}
	}
	if err := d.readNames(); err != nil {
		return nil, err
	}
	return d, nil
}

// keys are the keys of a payload; required ones are first, and one of the last two is present.
var keys = [...]string{"module_id", "digest", "timestamp", "certificate", "cabundle", "public_key", "user_data", "nonce", "nitrotpm_pcrs", "pcrs"}

const neededKeys = 5

// readPayload reads the map. Only this map may have no length, as a NitroTPM writes it. Its
// keys are in any order, each occurs once, and none is unknown. An omitted value is
// null.
func (d *Document) readPayload() error {
	r := &reader{data: d.envelope.payload}
	endless, pairs := r.next(indefiniteMap), 0
	if !endless {
		pairs = r.pairs(1, len(keys))
	}
	var seen [len(keys)]bool
	for endless && !r.next(breakStop) || pairs > 0 {
		pairs--
		key := r.text(1, 32) // "" after a fault
		n := slices.Index(keys[:], key)
		if n < 0 || seen[n] {
			return checkEncoding.Refuse("key "+refusal.Quote(key)+" that is unknown or there twice", "known keys, each once")
		}
		seen[n] = true
		if err := d.readMember(r, key); err != nil {
			return err
		}
	}
	r.end()
	if err := r.err("payload"); err != nil {
		return err
	}
	if n := slices.Index(seen[:neededKeys], false); n >= 0 {
		return checkEncoding.Refuse("no "+keys[n], "it")
	}
	if d.enclave = seen[len(keys)-1]; d.enclave == seen[len(keys)-2] {
		return checkEncoding.Refuse("pcrs and nitrotpm_pcrs, or neither", "one of them")
	}
	return nil
}

// readMember reads the value that belongs to a key.
func (d *Document) readMember(r *reader, key string) error {
	switch key {
	case "module_id":
		d.ModuleID = r.text(1, maxModuleID)
	case "digest":
		if digest := r.text(1, 16); digest != "SHA384" && r.fault == "" {
			return checkAlgorithm.Refuse("digest "+refusal.Quote(digest), "SHA384")
		}
	case "timestamp":
		d.Timestamp = time.UnixMilli(int64(r.uint(maxMilliseconds))).UTC()
	case "certificate":
		d.signer = r.bytes(1, maxField)
	case "cabundle":
		for range r.array(1, maxCertificates) {
			d.cabundle = append(d.cabundle, r.bytes(1, maxField))
		}
	case "public_key":
		d.PublicKey = r.optional(maxField)
	case "user_data":
		d.UserData = r.optional(maxField)
	case "nonce":
		d.Nonce = r.optional(maxField)
	default:
		return d.readPCRs(r)
	}
	return r.err(key)
}

// readPCRs reads the PCRs, each once.
func (d *Document) readPCRs(r *reader) error {
	n := r.pairs(1, maxPCRs)
	d.PCRs = make(map[int][]byte, n)
	for range n {
		index := int(r.uint(maxPCRs - 1))
		value := r.bytes(pcrSize, pcrSize)
		if r.fault == "" && d.PCRs[index] != nil {
			return checkEncoding.Refuse("PCR "+strconv.Itoa(index)+" twice", "once")
		}
		d.PCRs[index] = value
	}
	return r.err("PCRs")
}

// The names in the certificates: CN <module_id>.<region>.aws for the leaf, issued by <instance
// ID>.<region>.aws.nitro-enclaves, also for NitroTPMs.
const (
	leafSuffix   = ".aws"
	issuerSuffix = ".aws.nitro-enclaves"
)

// readNames takes the instance and region from the names, which must agree.
func (d *Document) readNames() error {
	instance, _, _ := strings.Cut(strings.TrimPrefix(d.ModuleID, "i-"), "-")
	d.InstanceID = "i-" + instance
	name := d.leaf.Subject.CommonName
	region, ours := strings.CutPrefix(name, d.ModuleID+".")
	region, isAWS := strings.CutSuffix(region, leafSuffix)
	if !ours || !isAWS || !validRegion(region) || !validInstance(d.InstanceID) {
		return checkModule.Refuse("module_id "+refusal.Quote(d.ModuleID)+" and a certificate of "+refusal.Quote(name), "the same module, and a region")
	}
	if issuer, want := d.leaf.Issuer.CommonName, d.InstanceID+"."+region+issuerSuffix; issuer != want {
		return checkModule.Refuse("an issuer "+refusal.Quote(issuer), want)
	}
	d.Region, d.Partition = region, partitionOf(region)
	return nil
}

// refuseEnclave checks that the document is a NitroTPM's.
func (d *Document) refuseEnclave() error {
	if d.enclave {
		return checkEnclave.Refuse("pcrs, as an enclave has", "nitrotpm_pcrs")
	}
	tpm, ok := strings.CutPrefix(d.ModuleID, d.InstanceID+"-tpm")
	if !ok || !names.IsHex(tpm, 16) {
		return checkModule.Refuse("module_id "+refusal.Quote(d.ModuleID), "<instance ID>-tpm<16 hexadecimal digits>")
	}
	return nil
}

// validInstance reports whether an ID is "i-" and 17 hexadecimal digits, or 8 in old IDs.
func validInstance(id string) bool {
	digits, ok := strings.CutPrefix(id, "i-")
	return ok && (names.IsHex(digits, 17) || names.IsHex(digits, 8))
}

// validRegion reports whether a region is an area, perhaps a part of it, a direction and a number,
// as in us-east-2 and us-gov-west-1. The name of a zone has a letter more, and is not a region.
func validRegion(region string) bool {
	parts := strings.Split(region, "-")
	n := len(parts) - 1
	if n != 2 && n != 3 || len(region) > 32 {
		return false
	}
	direction, number := parts[n-1], parts[n]
	letters := strings.Trim(strings.Join(parts[:n], ""), "abcdefghijklmnopqrstuvwxyz") == ""
	return letters && len(parts[0]) >= 2 && len(parts[1]) >= 2 && len(direction) >= len("east") &&
		number != "" && len(number) <= 2 && strings.Trim(number, "0123456789") == "" && number[0] != '0'
}

// partitionOf is the partition of a region, determined by the region's prefix.
func partitionOf(region string) string {
	for _, p := range [...][2]string{{"cn-", "aws-cn"}, {"us-gov-", "aws-us-gov"}, {"us-iso-", "aws-iso"}, {"us-isob-", "aws-iso-b"},
		{"eu-isoe-", "aws-iso-e"}, {"us-isof-", "aws-iso-f"}, {"eusc-", "aws-eusc"}} {
		if strings.HasPrefix(region, p[0]) {
			return p[1]
		}
	}
	return "aws"
}

// identityKind is the kind of the identities of this platform's machines.
const identityKind = "aws"

// Identity is the machine's identity, "aws:<partition>/<region>/<instance ID>".
func (d *Document) Identity() attest.Identity {
	return attest.Identity(identityKind + ":" + d.Partition + "/" + d.Region + "/" + d.InstanceID)
}

// Identity is the identity of an instance in a region, for a list of members. The error is
// an [*attest.Error] with [attest.CheckIdentity].
func Identity(region, instanceID string) (attest.Identity, error) {
	if !validRegion(region) || !validInstance(instanceID) {
		return "", attest.CheckIdentity.Refuse("region "+refusal.Quote(region)+", instance "+refusal.Quote(instanceID),
			`a region and no zone, and an instance in lower case, such as "us-east-2" and "i-0123456789abcdef0"`)
	}
	return (&Document{Partition: partitionOf(region), Region: region, InstanceID: instanceID}).Identity(), nil
}

// Grammar is that of the machines' identities, "aws:<partition>/<region>/<instance ID>".
func Grammar() attest.Grammar { return attest.Grammar{Kind: identityKind, Parse: parseIdentity} }

// parseIdentity reads "aws:<partition>/<region>/<instance ID>".
func parseIdentity(id attest.Identity) (attest.Identity, error) {
	parts := strings.Split(strings.TrimPrefix(string(id), identityKind+":"), "/")
	if len(parts) != 3 {
		return "", attest.CheckIdentity.Refuse(string(id), identityKind+":<partition>/<region>/<instance ID>")
	}
	want, err := Identity(parts[1], parts[2])
	if err == nil && want != id {
		return "", attest.CheckIdentity.Refuse(string(id), string(want))
	}
	return want, err
}
