package oid

import (
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

// maxGCEInstanceSize is the length in bytes of the longest value that [ParseGCEInstance]
// reads. Real ones have about a hundred.
const maxGCEInstanceSize = 4096

// The reasons for refusing a GCE instance identity.
const (
	// checkGCEInstanceSize: the value is empty or longer than 4096 bytes.
	checkGCEInstanceSize refusal.Check = "gce-instance-size"
	// checkGCEInstanceEncoding: the value is not the canonical DER of a GCEInstance.
	checkGCEInstanceEncoding refusal.Check = "gce-instance-encoding"
	// checkGCEInstanceText: a text is empty or has characters that never occur in its kind.
	checkGCEInstanceText refusal.Check = "gce-instance-text"
	// checkGCEInstanceNumber: the project number or the instance ID is zero, or the project
	// number is too large to be one. The fields may be in GKE's old order: see GCEInstance.
	checkGCEInstanceNumber refusal.Check = "gce-instance-number"
)

// maxProjectNumber separates project numbers, which Google assigns in ascending order and
// which have about twelve decimal digits, from instance IDs, which are spread over 63 bits
// or more.
const maxProjectNumber = 1<<53 - 1

// GCEInstance is the identity of a Google Compute Engine instance. Google writes it
// into the AK and EK certificates of its virtual TPMs, under
// [KubernetesNodeProviderIdentifier], as
//
//	SEQUENCE { zone UTF8String, projectNumber INTEGER, projectID UTF8String,
//	  instanceID INTEGER, instanceName UTF8String, security [0] EXPLICIT SEQUENCE OPTIONAL }
//
// GKE's node approver declared the fields in another order (zone, instanceID, instanceName,
// projectNumber, projectID), which has the same types, and so took the instance for the
// project without noticing. This package supports only the order of the certificates. It
// refuses a project number of more than 53 bits, which nearly every instance ID has, so that
// a value in the other order does not pass for another machine; one whose instance ID
// happens to be small is indistinguishable from a good one.
type GCEInstance struct {
	// Zone is the short name, such as "us-central1-a": letters, digits and hyphens.
	Zone string
	// ProjectNumber is from 1 to 2^53-1.
	ProjectNumber uint64
	// ProjectID is the project's name, such as "example.com:project": letters, digits,
	// hyphens, dots, and colons.
	ProjectID string
	// InstanceID is not zero.
	InstanceID uint64
	// InstanceName is made of letters, digits and hyphens.
	InstanceName string
	// Security is nil if the certificate states nothing.
	Security *GCESecurity
}

// GCESecurity is what Google states about an instance's security:
//
//	SEQUENCE { version [0] EXPLICIT INTEGER OPTIONAL,
//	  isProduction [1] EXPLICIT BOOLEAN OPTIONAL, further fields }
type GCESecurity struct {
	// Version is nil if it is not stated.
	Version *uint64
	// IsProduction is nil if it is not stated.
	IsProduction *bool
	// Rest holds the fields after these as received, with tags and lengths: context
	// tags from [2] in ascending order, whose meaning Google has not published.
	Rest []byte
}

// ParseGCEInstance reads the value of the extension in one of Google's certificates. It
// refuses everything except canonical DER of the shape above: Marshal of the result gives
// value again. The result does not alias value.
//
// The error is the check "gce-instance-size", "gce-instance-encoding", "gce-instance-text" or
// "gce-instance-number".
func ParseGCEInstance(value []byte) (*GCEInstance, error) {
	if len(value) == 0 || len(value) > maxGCEInstanceSize {
		return nil, errGCEInstanceSize(value)
	}
	input := cryptobyte.String(value)
	var s cryptobyte.String
	g := &GCEInstance{}
	if !input.ReadASN1(&s, cryptobyteasn1.SEQUENCE) || !input.Empty() ||
		!readUTF8(&s, &g.Zone) || !s.ReadASN1Integer(&g.ProjectNumber) ||
		!readUTF8(&s, &g.ProjectID) || !s.ReadASN1Integer(&g.InstanceID) ||
		!readUTF8(&s, &g.InstanceName) || !readTagged(&s, 0, g.readSecurity) || !s.Empty() {
		return nil, errGCEInstance()
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	return g, nil
}

// Marshal encodes the identity as in the certificates. For a field that [ParseGCEInstance]
// would refuse, the error is the same.
func (g *GCEInstance) Marshal() ([]byte, error) {
	if g == nil {
		g = &GCEInstance{}
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(cryptobyteasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		addUTF8(b, g.Zone)
		b.AddASN1Uint64(g.ProjectNumber)
		addUTF8(b, g.ProjectID)
		b.AddASN1Uint64(g.InstanceID)
		addUTF8(b, g.InstanceName)
		if g.Security != nil {
			b.AddASN1(explicitTag(0), func(b *cryptobyte.Builder) {
				b.AddASN1(cryptobyteasn1.SEQUENCE, g.Security.add)
			})
		}
	})
	value, err := b.Bytes()
	if len(value) > maxGCEInstanceSize {
		return nil, errGCEInstanceSize(value)
	}
	return value, err
}

func errGCEInstanceSize(value []byte) error {
	return checkGCEInstanceSize.Refuse(strconv.Itoa(len(value))+" bytes", "1 to "+strconv.Itoa(maxGCEInstanceSize))
}

func errGCEInstance() error { return checkGCEInstanceEncoding.Refuse("", "a GCEInstance in DER") }

func (g *GCEInstance) check() error {
	switch {
	case !isLabel(g.Zone, alphanumeric+"-") || !isLabel(g.ProjectID, alphanumeric+"-.:") || !isLabel(g.InstanceName, alphanumeric+"-"):
		return checkGCEInstanceText.Refuse(g.Zone+" "+g.ProjectID+" "+g.InstanceName, "a zone, a project and a name")
	case g.ProjectNumber == 0 || g.ProjectNumber > maxProjectNumber || g.InstanceID == 0:
		got := "project " + strconv.FormatUint(g.ProjectNumber, 10) + ", instance " + strconv.FormatUint(g.InstanceID, 10)
		return checkGCEInstanceNumber.Refuse(got, "two numbers, the first of at most 53 bits")
	case g.Security != nil && !isAscending(cryptobyte.String(g.Security.Rest)):
		return errGCEInstance()
	}
	return nil
}

const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// isLabel reports whether s is not empty and consists of characters of an ASCII alphabet.
func isLabel(s, alphabet string) bool { return s != "" && strings.Trim(s, alphabet) == "" }

// readSecurity leaves validating the further fields to check.
func (g *GCEInstance) readSecurity(s *cryptobyte.String) bool {
	var fields cryptobyte.String
	g.Security = &GCESecurity{}
	ok := s.ReadASN1(&fields, cryptobyteasn1.SEQUENCE) &&
		readTagged(&fields, 0, func(s *cryptobyte.String) bool {
			g.Security.Version = new(uint64)
			return s.ReadASN1Integer(g.Security.Version)
		}) &&
		readTagged(&fields, 1, func(s *cryptobyte.String) bool {
			g.Security.IsProduction = new(bool)
			return s.ReadASN1Boolean(g.Security.IsProduction)
		})
	g.Security.Rest = append(g.Security.Rest, fields...)
	return ok
}

// readTagged reads the whole content of an explicit tag, if there is one.
func readTagged(s *cryptobyte.String, tag uint8, read func(*cryptobyte.String) bool) bool {
	var content cryptobyte.String
	var present bool
	return s.ReadOptionalASN1(&content, &present, explicitTag(tag)) && (!present || read(&content) && content.Empty())
}

func (s *GCESecurity) add(b *cryptobyte.Builder) {
	if s.Version != nil {
		b.AddASN1(explicitTag(0), func(b *cryptobyte.Builder) { b.AddASN1Uint64(*s.Version) })
	}
	if s.IsProduction != nil {
		b.AddASN1(explicitTag(1), func(b *cryptobyte.Builder) { b.AddASN1Boolean(*s.IsProduction) })
	}
	b.AddBytes(s.Rest)
}

// isAscending reports whether s holds only elements with the explicit tags [2] to [30], each
// larger than the one before.
func isAscending(s cryptobyte.String) bool {
	last := explicitTag(1)
	for !s.Empty() {
		var tag cryptobyteasn1.Tag
		var element cryptobyte.String
		if !s.ReadAnyASN1(&element, &tag) || tag <= last || tag > explicitTag(30) {
			return false
		}
		last = tag
	}
	return true
}

func explicitTag(n uint8) cryptobyteasn1.Tag {
	return cryptobyteasn1.Tag(n).Constructed().ContextSpecific()
}

// readUTF8 leaves validating the alphabet, which is within ASCII, to check.
func readUTF8(s *cryptobyte.String, out *string) bool {
	var text cryptobyte.String
	ok := s.ReadASN1(&text, cryptobyteasn1.UTF8String)
	*out = string(text)
	return ok
}

func addUTF8(b *cryptobyte.Builder, text string) {
	b.AddASN1(cryptobyteasn1.UTF8String, func(b *cryptobyte.Builder) { b.AddBytes([]byte(text)) })
}
