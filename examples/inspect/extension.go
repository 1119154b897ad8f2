package main

import (
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// extensions reads a list of X.509 extensions.
func (r *reader) extensions() {
	for r.more() {
		r.enter("extension", asn1.SEQUENCE, func(in *reader, _ []byte) { in.extension() })
	}
}

func (r *reader) extension() {
	id := r.oid("extension")
	if r.done {
		return
	}
	critical := ""
	if r.peek() == asn1.BOOLEAN {
		flag, _, _ := r.take("critical", asn1.BOOLEAN)
		switch {
		case r.done:
			return
		case string(flag.b) == "\xff":
			critical = "critical"
		case string(flag.b) == "\x00": // some issuers write the default value
			critical = "not critical, in so many words"
		default:
			r.stop("critical: %s, want TRUE, or nothing for FALSE", hexOf(flag.b))
			return
		}
	}
	r.t.in("extension "+nameOf(id), critical, func() {
		content, _, ok := r.takeOpen("value", asn1.OCTET_STRING, true)
		if !ok {
			return
		}
		content.extensionValue(id)
		content.end()
	})
}

// extensionValue reads the content of an extension that this program knows.
func (r *reader) extensionValue(id oid.OID) {
	switch id {
	case oid.KubernetesNodeProviderIdentifier:
		r.providerIdentifier()
	case oid.SubjectAltName:
		r.generalNames("subjectAltName")
	case oid.KeyUsage:
		r.keyUsage()
	case oid.ExtendedKeyUsage:
		r.enter("extKeyUsage", asn1.SEQUENCE, func(in *reader, _ []byte) {
			for in.more() {
				if usage := in.oid("usage"); !in.done {
					in.t.line("usage", nameOf(usage))
				}
			}
		})
	case oid.BasicConstraints:
		r.basicConstraints()
	case oid.SubjectKeyIdentifier:
		r.octets("key identifier")
	case oid.AuthorityKeyIdentifier:
		r.enter("authorityKeyIdentifier", asn1.SEQUENCE, func(in *reader, _ []byte) {
			for in.more() {
				if tag, content, _, ok := in.element("field"); ok {
					name := map[asn1.Tag]string{0x80: "key identifier", 0xa1: "issuer", 0x82: "serial"}[tag]
					in.t.line(orUnknown(name), hexOf(content.b))
				}
			}
		})
	case oid.AuthorityInfoAccess:
		r.enter("authorityInfoAccess", asn1.SEQUENCE, func(in *reader, _ []byte) {
			for in.more() {
				in.enter("access", asn1.SEQUENCE, func(in *reader, _ []byte) {
					if method := in.oid("method"); !in.done {
						in.t.in(nameOf(method), "", in.generalName)
					}
				})
			}
		})
	case oid.SubjectDirectoryAttributes:
		r.enter("subjectDirectoryAttributes", asn1.SEQUENCE, func(in *reader, _ []byte) {
			for in.more() {
				in.directoryAttribute()
			}
		})
	default:
		r.t.line("value", hexOf(r.b))
		r.b, r.at = nil, r.at+len(r.b)
	}
}

// providerIdentifier reads what Kubernetes' nodes and Google's certificates have under
// one identifier.
func (r *reader) providerIdentifier() {
	if r.peek() == asn1.SEQUENCE {
		r.strictly(func() { _, _, _, _ = r.element("GCE instance") }, func(raw []byte) error {
			g, err := oid.ParseGCEInstance(raw)
			if err != nil {
				return err
			}
			r.t.in("GCE instance", "", func() {
				r.t.line("zone", quoted(g.Zone))
				r.t.line("project", quoted(g.ProjectID)+", number "+strconv.FormatUint(g.ProjectNumber, 10))
				r.t.line("instance", quoted(g.InstanceName)+", ID "+strconv.FormatUint(g.InstanceID, 10))
				if s := g.Security; s != nil && s.Version != nil {
					r.t.line("security version", strconv.FormatUint(*s.Version, 10))
				}
				if s := g.Security; s != nil && s.IsProduction != nil {
					r.t.line("production", strconv.FormatBool(*s.IsProduction))
				}
			})
			return nil
		})
		return
	}
	r.strictly(func() { r.text("provider ID") }, func(raw []byte) error {
		_, err := oid.UnmarshalProviderID(raw)
		return err
	})
}

func (r *reader) keyUsage() {
	content, _, ok := r.take("keyUsage", asn1.BIT_STRING)
	if !ok {
		return
	}
	if len(content.b) < 2 || len(content.b) > 3 || content.b[0] > 7 {
		content.stop("keyUsage: no BIT STRING of 1 to 9 bits: %s", hexOf(content.b))
		return
	}
	names := []string{"digitalSignature", "contentCommitment", "keyEncipherment", "dataEncipherment", "keyAgreement",
		"keyCertSign", "cRLSign", "encipherOnly", "decipherOnly"}
	var set []string
	for i, name := range names {
		if octet := 1 + i/8; octet < len(content.b) && content.b[octet]>>(7-i%8)&1 == 1 {
			set = append(set, name)
		}
	}
	r.t.line("usage", strings.Join(set, ", "))
}

func (r *reader) basicConstraints() {
	r.enter("basicConstraints", asn1.SEQUENCE, func(in *reader, _ []byte) {
		is := "no"
		if in.peek() == asn1.BOOLEAN {
			if flag, _, ok := in.take("cA", asn1.BOOLEAN); ok && string(flag.b) != "\x00" {
				is = "YES"
			}
		}
		in.t.line("certificate authority", is)
		if in.more() {
			in.integer("path length")
		}
	})
}

// directoryAttribute reads one of the subject directory attributes of TPM certificates:
// TCG EK Credential Profile 2.6, 3.2.12.
func (r *reader) directoryAttribute() {
	r.enter("attribute", asn1.SEQUENCE, func(in *reader, _ []byte) {
		id := in.oid("attribute")
		if in.done {
			return
		}
		in.node(nameOf(id), asn1.SET, func(in *reader, _ []byte) {
			if id != oid.TCGAtTPMSpecification {
				in.t.line("value", hexOf(in.b))
				in.b, in.at = nil, in.at+len(in.b)
				return
			}
			in.enter("TPMSpecification", asn1.SEQUENCE, func(in *reader, _ []byte) {
				in.text("family")
				in.integer("level")
				in.integer("revision")
			})
		})
	})
}
