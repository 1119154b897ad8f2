package awsid

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxSize is the length in bytes of the longest signed document that is read. Real ones are
// about 1100 bytes long.
const maxSize = 8 << 10

// maxContent is the length in bytes of the longest JSON in it, where each member costs a little. Real
// ones are about 480 bytes long.
const maxContent = 4 << 10

// maxProducts is the number of the most codes of products in one list, each of which costs a little.
const maxProducts = 64

var errProducts = errors.New("got more than " + strconv.Itoa(maxProducts) + " codes of products")

// The checks on a signed document.
const (
	// checkSize: it is empty or longer than 8 KiB.
	checkSize refusal.Check = "awsid-size"
	// checkEncoding: it is not a PKCS #7 SignedData in the shape that AWS sends.
	checkEncoding refusal.Check = "awsid-encoding"
	// checkAlgorithm: it is signed with algorithms other than RSA and SHA-256.
	checkAlgorithm refusal.Check = "awsid-algorithm"
	// checkAttributes: one of the signed attributes is missing, duplicated or out of order, or
	// has a value other than the required one.
	checkAttributes refusal.Check = "awsid-attributes"
	// checkDigest: the signature covers a document other than the one inside.
	checkDigest refusal.Check = "awsid-digest"
	// checkClaims: the document is not a JSON object, has a duplicate member, or a required
	// member is missing or malformed.
	checkClaims refusal.Check = "awsid-claims"
	// checkRegion: there is no certificate for the document's region.
	checkRegion refusal.Check = "awsid-region"
	// checkSigner: it is signed by a certificate other than that of the document's region.
	checkSigner refusal.Check = "awsid-signer"
	// checkSignature: the signature is not that of the region's key.
	checkSignature refusal.Check = "awsid-signature"
	// checkExpired: the region's certificate is not valid at this time.
	checkExpired refusal.Check = "awsid-certificate-expired"
	// checkFuture: it was signed more than a minute in the future.
	checkFuture refusal.Check = "awsid-future"
)

// leeway is how far AWS' clock may be ahead of the caller's.
const leeway = time.Minute

// Document is what AWS says about an instance.
type Document struct {
	// AccountID is the account's number, 12 digits.
	AccountID string
	// Region and AvailabilityZone are written like "us-west-2" and "us-west-2a".
	Region, AvailabilityZone string
	// InstanceID is "i-" and 8 or 17 lower-case hexadecimal digits.
	InstanceID string
	// ImageID, InstanceType, Architecture, PrivateIP and Version are as AWS writes them, or ""
	// if it does not.
	ImageID, InstanceType, Architecture, PrivateIP, Version string
	// BillingProducts are the codes of AWS' products that the instance pays for, and
	// MarketplaceProductCodes the codes of other vendors' products, at most 64 each; nil if the document has no list.
	BillingProducts, MarketplaceProductCodes []string
	// PendingTime is when the instance was started, in whole seconds.
	PendingTime time.Time
	// SigningTime is when AWS signed the document, a few seconds later. It is signed only
	// once, so this says nothing about when the document was requested.
	SigningTime time.Time
	// JSON is the document as it was signed.
	JSON []byte
}

var (
	accountPattern  = pattern(`^[0-9]{12}$`)
	instancePattern = pattern(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)
	regionPattern   = pattern(`^[a-z]{2,8}(-[a-z0-9]{1,16}){2,4}$`)
)

// pattern is compiled when it is first used, for the sake of programs that never do.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// readJSON reads the document that was signed. Members not named here are allowed.
func (d *Document) readJSON() error {
	nullable := func(read func(*strictjson.Reader) error) func(*strictjson.Reader) error {
		return func(r *strictjson.Reader) error {
			if r.Type() == strictjson.NullType {
				return r.Null()
			}
			return read(r)
		}
	}
	optional := func(s *string) func(*strictjson.Reader) error { return nullable(strictjson.Into(s)) }
	list := func(s *[]string) func(*strictjson.Reader) error {
		return nullable(func(r *strictjson.Reader) error {
			*s = []string{}
			return r.Array(func() error {
				if len(*s) == maxProducts {
					return errProducts
				}
				product, err := r.String()
				*s = append(*s, product)
				return err
			})
		})
	}
	if len(d.JSON) > maxContent {
		return checkClaims.Refuse(strconv.Itoa(len(d.JSON))+" bytes of JSON", "at most "+strconv.Itoa(maxContent))
	}
	var pending string
	err := strictjson.Fields{
		"accountId": strictjson.Into(&d.AccountID), "region": strictjson.Into(&d.Region), "availabilityZone": optional(&d.AvailabilityZone),
		"instanceId": strictjson.Into(&d.InstanceID), "imageId": optional(&d.ImageID), "instanceType": optional(&d.InstanceType),
		"architecture": optional(&d.Architecture), "privateIp": optional(&d.PrivateIP), "version": optional(&d.Version),
		"billingProducts": list(&d.BillingProducts), "marketplaceProductCodes": list(&d.MarketplaceProductCodes),
		"pendingTime": strictjson.Into(&pending),
	}.Parse(d.JSON)
	if err != nil {
		return &refusal.Error{Check: checkClaims, Got: "a document that cannot be read", Want: "an instance identity document", Err: err}
	}
	if d.PendingTime, err = time.Parse(time.RFC3339, pending); err != nil {
		return checkClaims.Refuse("pendingTime "+refusal.Quote(pending), "a time as RFC 3339 has it")
	}
	d.PendingTime = d.PendingTime.UTC()
	for _, c := range []struct {
		name, got string
		pattern   func() *regexp.Regexp
		want      string
	}{
		{"accountId", d.AccountID, accountPattern, "12 digits"},
		{"instanceId", d.InstanceID, instancePattern, "i- and 8 or 17 hexadecimal digits"},
		{"region", d.Region, regionPattern, "the name of a region"},
	} {
		if !c.pattern().MatchString(c.got) {
			return checkClaims.Refuse(c.name+" "+refusal.Quote(c.got), c.want)
		}
	}
	return nil
}

// checkInput refuses input that must not be parsed, and names the likely mistake.
func checkInput(pkcs7 []byte) error {
	switch {
	case len(pkcs7) == 0 || len(pkcs7) > maxSize:
		return checkSize.Refuse(strconv.Itoa(len(pkcs7))+" bytes", "1 to "+strconv.Itoa(maxSize))
	case len(pkcs7) == 1024/8:
		return checkAlgorithm.Refuse("128 bytes, as /signature has them, with an RSA-1024 key that many regions share", "the document at /rsa2048")
	case bytes.HasPrefix(pkcs7, []byte("MI")):
		return checkEncoding.Refuse("base64", "decoded bytes")
	}
	return nil
}
