package csr

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// CreateOptions are the optional parts of a request. The zero value asks for none of them.
type CreateOptions struct {
	// ProviderID is the node's provider ID, for the extension that oid.ProviderIDExtension
	// makes; 1 to oid.MaxProviderIDSize bytes, or empty for none.
	ProviderID string
	// DNSNames and IPAddresses become the subjectAltName of a serving request, in this
	// order. A serving request needs at least one of them; the other purposes have neither.
	// Addresses have no zone. There are at most 100 in total, and none that every
	// [Policy] reserves.
	DNSNames    []string
	IPAddresses []netip.Addr
	// Flag is the identifier of the extension that says that the request has TPM evidence
	// (the 2018 TPM bootstrapping design, "CSR creation"; no identifier was ever
	// registered). Nil means no such extension.
	Flag asn1.ObjectIdentifier
}

// Create makes a node's certificate request and returns it as PKCS#10 DER, for use as
// Bundle.Request. The subject is that of [Purpose.SubjectNames]. key signs the request: RSA with at
// least 2048 bits (RSASSA-PKCS1-v1_5 with SHA-256), or ECDSA on P-256 or P-384 (SHA-256 and
// SHA-384). It may live in a TPM.
//
// SANs are refused for client and recovery certificates and required for serving
// certificates. What no policy would accept gives [refusal.CheckConfig]; for a provider ID
// or flag it wraps the error of package oid or names the check "flag". Other errors are the
// signer's or as for [ParsePKCS10]: the request is read back, and its signature verified,
// before it is returned.
func Create(purpose Purpose, key crypto.Signer, nodeName string, o CreateOptions) ([]byte, error) {
	if !names.ValidNode(nodeName) {
		return nil, refusal.Config("node name", refusal.Quote(nodeName), names.WantNode(nodeName))
	}
	commonName, organization := purpose.SubjectNames(nodeName)
	if commonName == "" {
		return nil, refusal.Config("purpose", purpose.String(), "client, serving or recovery")
	}
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: commonName, Organization: []string{organization}},
	}
	if err := o.addTo(template, purpose); err != nil {
		return nil, err
	}
	if !completeKey(key) {
		return nil, refusal.Config("key", "that lacks a part, or none", createKeys)
	}
	if err := checkCreateKey(key.Public()); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("csr: signing the request: %w", err)
	}
	p, err := ParsePKCS10(der)
	if err == nil {
		err = p.CheckSignature()
	}
	if err != nil {
		return nil, err
	}
	return der, nil
}

// createKeys are the keys that every policy accepts.
const createKeys = "RSA of 2048 to 4096 bits, or ECDSA on P-256 or P-384"

// checkCreateKey refuses keys that no policy accepts.
func checkCreateKey(pub crypto.PublicKey) error {
	switch key := pub.(type) {
	case *rsa.PublicKey:
		if key.N != nil && key.N.BitLen() >= minRSABits && key.N.BitLen() <= maxPolicyRSABit && key.E == 65537 {
			return nil
		}
	case *ecdsa.PublicKey:
		if slices.Contains(policyCurves, key.Curve) {
			return nil
		}
	}
	return refusal.Config("key", fmt.Sprintf("%T", pub), createKeys)
}

// addTo writes the options into template.
func (o *CreateOptions) addTo(template *x509.CertificateRequest, purpose Purpose) error {
	count := len(o.DNSNames) + len(o.IPAddresses)
	if err := (faults{
		{purpose == PurposeServing && count == 0, refusal.CheckConfig, "no DNSNames and no IPAddresses", "one at least in a serving certificate"},
		{purpose != PurposeServing && count > 0, refusal.CheckConfig, "DNSNames or IPAddresses in a " + purpose.String() + " certificate", "none"},
		{count > maxSANs, refusal.CheckConfig, "DNSNames and IPAddresses: " + strconv.Itoa(count), "at most " + strconv.Itoa(maxSANs)},
	}).first(); err != nil {
		return err
	}
	if err := new(names.Reserved).Check(o.DNSNames, o.IPAddresses); err != nil {
		return err
	}
	for _, name := range o.DNSNames { // which the certificate has in lower case
		if lower := names.Lower(name); name != lower {
			return refusal.Config("DNS name", refusal.Quote(name), "it in lower case, as the certificate has it: "+lower)
		}
	}
	template.DNSNames = o.DNSNames
	for _, ip := range o.IPAddresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.Unmap().AsSlice()))
	}
	if o.ProviderID != "" {
		extension, err := oid.ProviderIDExtension(o.ProviderID)
		if err != nil {
			return &Error{Check: refusal.CheckConfig, Got: "ProviderID " + refusal.Quote(o.ProviderID), Err: err}
		}
		template.ExtraExtensions = append(template.ExtraExtensions, extension)
	}
	if o.Flag != nil {
		extension, err := flagExtension(o.Flag)
		if err != nil {
			return &Error{Check: refusal.CheckConfig, Got: "Flag " + o.Flag.String(), Err: err}
		}
		template.ExtraExtensions = append(template.ExtraExtensions, extension)
	}
	return nil
}
