package oid

import "sort"

// identifiers lists every identifier of this package, sorted by its bytes. It is never modified.
var identifiers = [...]struct {
	id   OID
	name string
}{
	{RSAEncryption, "rsaEncryption"},
	{SHA1WithRSA, "sha1WithRSAEncryption"},
	{RSAESOAEP, "id-RSAES-OAEP"},
	{RSASSAPSS, "id-RSASSA-PSS"},
	{SHA256WithRSA, "sha256WithRSAEncryption"},
	{SHA384WithRSA, "sha384WithRSAEncryption"},
	{SHA512WithRSA, "sha512WithRSAEncryption"},
	{ChallengePassword, "challengePassword"},
	{ExtensionRequest, "extensionRequest"},
	{IDAAAttestation, "id-aa-attestation"},
	{ECPublicKey, "id-ecPublicKey"},
	{CurveP256, "secp256r1"},
	{ECDSAWithSHA1, "ecdsa-with-SHA1"},
	{ECDSAWithSHA256, "ecdsa-with-SHA256"},
	{ECDSAWithSHA384, "ecdsa-with-SHA384"},
	{ECDSAWithSHA512, "ecdsa-with-SHA512"},
	{AzureKpAK, "szOID_KP_DOCUMENT_SIGNING"},
	{KubernetesUID, "KubernetesUserUID"},
	{KubernetesNodeProviderIdentifier, "KubernetesNodeProviderIdentifierOID"},
	{authorityInfoAccess, "id-pe-authorityInfoAccess"},
	{KpServerAuth, "id-kp-serverAuth"},
	{kpClientAuth, "id-kp-clientAuth"},
	{PermanentIdentifier, "id-on-permanentIdentifier"},
	{HardwareModuleName, "id-on-hardwareModuleName"},
	{Ed25519, "id-Ed25519"},
	{curveP224, "secp224r1"},
	{curveP384, "secp384r1"},
	{curveP521, "secp521r1"},
	{CommonName, "id-at-commonName"},
	{SerialNumber, "id-at-serialNumber"},
	{country, "id-at-countryName"},
	{locality, "id-at-localityName"},
	{province, "id-at-stateOrProvinceName"},
	{Organization, "id-at-organizationName"},
	{OrganizationalUnit, "id-at-organizationalUnitName"},
	{SubjectDirectoryAttributes, "id-ce-subjectDirectoryAttributes"},
	{SubjectKeyIdentifier, "id-ce-subjectKeyIdentifier"},
	{KeyUsage, "id-ce-keyUsage"},
	{SubjectAltName, "id-ce-subjectAltName"},
	{BasicConstraints, "id-ce-basicConstraints"},
	{nameConstraints, "id-ce-nameConstraints"},
	{crlDistributionPoints, "id-ce-cRLDistributionPoints"},
	{CertificatePolicies, "id-ce-certificatePolicies"},
	{AuthorityKeyIdentifier, "id-ce-authorityKeyIdentifier"},
	{ExtendedKeyUsage, "id-ce-extKeyUsage"},
	{AnyExtendedKeyUsage, "anyExtendedKeyUsage"},
	{TCGTPM20, "tcg-tpm20"},
	{TCGAtTPMManufacturer, "tcg-at-tpmManufacturer"},
	{TCGAtTPMModel, "tcg-at-tpmModel"},
	{TCGAtTPMVersion, "tcg-at-tpmVersion"},
	{TCGAtTPMSpecification, "tcg-at-tpmSpecification"},
	{TCGKpEKCertificate, "tcg-kp-EKCertificate"},
	{TCGKpPlatformCertificate, "tcg-kp-PlatformAttributeCertificate"},
	{TCGKpAIKCertificate, "tcg-kp-AIKCertificate"},
	{TCGCapVerifiedTPMResidency, "tcg-cap-verifiedTPMResidency"},
	{TCGCapVerifiedTPMFixed, "tcg-cap-verifiedTPMFixed"},
	{TCGCapVerifiedTPMRestricted, "tcg-cap-verifiedTPMRestricted"},
	{TCGAttestTPMCertify, "tcg-attest-tpm-certify"},
	{TCGAttestTPMQuote, "tcg-attest-tpm-quote"},
	{nodeAttest, "nodeattest"},
	{NodeAttestHello, "nodeattest-hello"},
	{NodeAttestProof, "nodeattest-proof"},
	{NodeAttestQuote, "nodeattest-quote"},
	{NodeAttestEventLog, "nodeattest-event-log"},
	{NodeAttestDocumentHello, "nodeattest-document-hello"},
	{NodeAttestDocumentProof, "nodeattest-document-proof"},
	{NodeAttestDocument, "nodeattest-document"},
}

// find looks content up in identifiers.
func find(content []byte) (int, bool) {
	i := sort.Search(len(identifiers), func(i int) bool { return string(identifiers[i].id) >= string(content) })
	return i, i < len(identifiers) && string(identifiers[i].id) == string(content)
}

// Name returns the identifier's name in the document that defines it, such as
// "tcg-kp-EKCertificate", or "" if this package does not know it.
func (o OID) Name() string {
	if i, ok := find([]byte(o)); ok {
		return identifiers[i].name
	}
	return ""
}
