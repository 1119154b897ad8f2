package azure

import (
	"crypto/x509"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// Document is what an attested document of the Instance Metadata Service says ("Attested
// data" in Microsoft's documentation of the service).
type Document struct {
	// VMID and SubscriptionID name the machine, in lower case: each is empty or a UUID of
	// 36 characters. Documents from before 2019 name no subscription.
	VMID, SubscriptionID string
	// Nonce is the caller's, at most 32 characters. If the caller supplied none, the
	// service writes the document's expiry time, as 20260728-192400.
	Nonce string
	// CreatedOn and ExpiresOn are whole seconds, six hours apart.
	CreatedOn, ExpiresOn time.Time
	// Name is the name in the signer's certificate that was accepted, such as
	// eastus.metadata.azure.com, and Chain is the chain of that certificate, leaf first and
	// root last. Both are empty if nothing was verified.
	Name  string
	Chain []*x509.Certificate
}

// Identity is the machine's identity, or an error with [attest.CheckIdentity] if the document
// does not name a machine and a subscription.
func (d *Document) Identity() (attest.Identity, error) {
	if d == nil {
		d = &Document{}
	}
	return Identity(d.SubscriptionID, d.VMID)
}

// identityKind is the kind of the identities of this platform's machines.
const identityKind = "azure"

// Identity is the identity of a machine, "azure:<subscription>/<vmId>" in lower case. It
// accepts UUIDs in either case: Azure's interfaces return both. The error is an
// [*attest.Error] with [attest.CheckIdentity].
func Identity(subscriptionID, vmID string) (attest.Identity, error) {
	subscription, vm := strings.ToLower(subscriptionID), strings.ToLower(vmID)
	if !validUUID(subscription) || !validUUID(vm) {
		return "", attest.CheckIdentity.Refuse("subscription "+refusal.Quote(subscriptionID)+", vmId "+refusal.Quote(vmID), "two UUIDs")
	}
	return attest.Identity(identityKind + ":" + subscription + "/" + vm), nil
}

// Grammar is that of the machines' identities, "azure:<subscription>/<vmId>" with two UUIDs.
// Either case is read, and lower case written.
func Grammar() attest.Grammar { return attest.Grammar{Kind: identityKind, Parse: parseIdentity} }

// parseIdentity reads "azure:<subscription>/<vmId>", in either case.
func parseIdentity(id attest.Identity) (attest.Identity, error) {
	subscription, vm, _ := strings.Cut(strings.TrimPrefix(string(id), identityKind+":"), "/")
	return Identity(subscription, vm)
}

// validUUID reports whether s is a UUID in lower case, with hyphens.
func validUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for n, c := range []byte(s) {
		hyphen := n == 8 || n == 13 || n == 18 || n == 23
		if hyphen != (c == '-') || !hyphen && !strings.Contains("0123456789abcdef", string(rune(c))) {
			return false
		}
	}
	return true
}

// parseInsecure reads a document (DER) and verifies nothing: whatever it says may be forged. A
// node uses it to compare the nonce. The error is a [*refusal.Error] with the check
// "azure-document-encoding", "azure-document-signers", "azure-document-attributes" or
// "azure-document-algorithm".
func parseInsecure(document []byte) (*Document, error) {
	signed, err := readSignedData(document)
	if err != nil {
		return nil, err
	}
	return readContent(signed.content)
}

// readContent reads the JSON. Unknown members are allowed, since Microsoft has added some:
// they are signed, and say nothing that counts here.
func readContent(content []byte) (*Document, error) {
	if len(content) > maxContentSize {
		return nil, checkEncoding.Refuse(strconv.Itoa(len(content))+" bytes of content", "at most "+strconv.Itoa(maxContentSize))
	}
	d := &Document{}
	var created, expires string
	times := strictjson.Fields{"createdOn": strictjson.Into(&created), "expiresOn": strictjson.Into(&expires)}
	err := strictjson.Fields{"vmId": strictjson.Into(&d.VMID), "subscriptionId": strictjson.Into(&d.SubscriptionID),
		"nonce": strictjson.Into(&d.Nonce), "timeStamp": times.Read}.Parse(content)
	if err != nil {
		return nil, &refusal.Error{Check: checkEncoding, Got: "a bad content", Want: "JSON", Err: err}
	}
	d.VMID, d.SubscriptionID = strings.ToLower(d.VMID), strings.ToLower(d.SubscriptionID)
	if len(d.VMID) > maxName || len(d.SubscriptionID) > maxName || len(d.Nonce) > maxNonce {
		return nil, bad("content", "short texts")
	}
	if d.CreatedOn, err = readTime(created); err != nil {
		return nil, err
	}
	if d.ExpiresOn, err = readTime(expires); err != nil {
		return nil, err
	}
	return d, nil
}

// Limits of the content of a document, where each member costs a little, and of texts in it, in
// bytes. Real contents are 170 to 310 bytes long.
const (
	maxContentSize = 4 << 10
	maxName        = 64
	maxNonce       = 64
)

// timeFormat is month, day and a two-digit year, and always UTC.
const timeFormat = "01/02/06 15:04:05 -0000"

func readTime(s string) (time.Time, error) {
	t, err := time.Parse(timeFormat, s)
	if err != nil || t.Format(timeFormat) != s {
		return time.Time{}, bad("time "+refusal.Quote(s), "one as 01/02/06 15:04:05 -0000")
	}
	return t, nil
}

// checkNonce: the nonce is not one that a node of this SDK supplies, "nodeattest" and 22
// characters. The service writes one of the form 20260728-192400 if it was given none;
// any other may come from its cache, or belong to another product.
const checkNonce refusal.Check = "azure-document-nonce"

// A nonce is at most 32 letters and digits. The label says what it is for, so that a document
// that another product's server asked for is refused. It leaves 22 characters for the
// value, in base 62: the digits, a to z and A to Z, with zeros in front.
const (
	label       = "nodeattest"
	valueSize   = 16 // bytes of the qualifying data: the first ones
	valueDigits = 22
	base        = 62
)

// nonceOf is the nonce for a value.
func nonceOf(value []byte) string {
	digits := new(big.Int).SetBytes(value[:valueSize]).Text(base)
	return label + strings.Repeat("0", valueDigits-len(digits)) + digits
}

// value is the first 16 bytes of the qualifying data that the document covers.
func (d *Document) value() ([]byte, error) {
	n, ok := new(big.Int).SetString(strings.TrimPrefix(d.Nonce, label), base)
	if ok && n.BitLen() <= 8*valueSize {
		if value := n.FillBytes(make([]byte, valueSize)); nonceOf(value) == d.Nonce { // label, sign and zeros among them
			return value, nil
		}
	}
	return nil, checkNonce.Refuse(refusal.Quote(d.Nonce), label+" and 22 characters of base 62")
}
