package oid

// Identifiers of Kubernetes and of the clouds' certificates.
const (
	// KubernetesNodeProviderIdentifier is the extension with a node's provider ID (Cluster
	// API kubelet authentication, "OIDs"). It is in Google's arc: Google's AK and EK
	// certificates carry a [GCEInstance] under the same identifier.
	// KubernetesNodeProviderIdentifierOID, 1.3.6.1.4.1.11129.2.1.21.
	KubernetesNodeProviderIdentifier OID = "\x2b\x06\x01\x04\x01\xd6\x79\x02\x01\x15"
	// KubernetesUID is the subject attribute that kube-apiserver reads as a user's UID
	// (k8s.io/apiserver, authentication/request/x509). A node's certificate never has
	// it. KubernetesUserUID, 1.3.6.1.4.1.57683.2.
	KubernetesUID OID = "\x2b\x06\x01\x04\x01\x83\xc2\x53\x02"
	// AzureKpAK is the extended key usage that all AK certificates of Azure have: Microsoft's
	// "document signing". Today's certificates have TCGKpAIKCertificate too.
	// szOID_KP_DOCUMENT_SIGNING, 1.3.6.1.4.1.311.10.3.12.
	AzureKpAK OID = "\x2b\x06\x01\x04\x01\x82\x37\x0a\x03\x0c"
)

// Identifiers of the TCG: extended key usages of certificates (EK Credential
// Profile v2.6; Platform Certificate Profile), attributes of the directory name and
// of the subject directory attributes in them, and attestation statements.
const (
	// TCGKpEKCertificate is the extended key usage of EK certificates, and of Google's
	// older AK certificates. tcg-kp-EKCertificate, 2.23.133.8.1.
	TCGKpEKCertificate OID = "\x67\x81\x05\x08\x01"
	// TCGKpPlatformCertificate is the extended key usage of platform attribute
	// certificates. tcg-kp-PlatformAttributeCertificate, 2.23.133.8.2.
	TCGKpPlatformCertificate OID = "\x67\x81\x05\x08\x02"
	// TCGKpAIKCertificate is the extended key usage of AK certificates.
	// tcg-kp-AIKCertificate, 2.23.133.8.3.
	TCGKpAIKCertificate OID = "\x67\x81\x05\x08\x03"
	// TCGAtTPMManufacturer is the directory-name attribute with "id:" and the vendor's four
	// bytes as eight hexadecimal digits. tcg-at-tpmManufacturer, 2.23.133.2.1.
	TCGAtTPMManufacturer OID = "\x67\x81\x05\x02\x01"
	// TCGAtTPMModel is the directory-name attribute with the TPM's part number.
	// tcg-at-tpmModel, 2.23.133.2.2.
	TCGAtTPMModel OID = "\x67\x81\x05\x02\x02"
	// TCGAtTPMVersion is the directory-name attribute with "id:" and the firmware's version
	// in hexadecimal. tcg-at-tpmVersion, 2.23.133.2.3.
	TCGAtTPMVersion OID = "\x67\x81\x05\x02\x03"
	// TCGAtTPMSpecification is the subject directory attribute with the family, level
	// and revision of the TPM specification. tcg-at-tpmSpecification, 2.23.133.2.16.
	TCGAtTPMSpecification OID = "\x67\x81\x05\x02\x10"
	// TCGTPM20 is the hwType of a [HardwareModuleName] that names a TPM 2.0. tcg-tpm20,
	// 2.23.133.1.2.
	TCGTPM20 OID = "\x67\x81\x05\x01\x02"
	// TCGCapVerifiedTPMResidency, TCGCapVerifiedTPMFixed and TCGCapVerifiedTPMRestricted are
	// the certificate policies with which a CA says that it has verified that a key is in a
	// TPM, is fixed to it, and is restricted (TPM 2.0 Keys for Device Identity and
	// Attestation 1.0, section 8). tcg-cap-verifiedTPMResidency, 2.23.133.11.1.1.
	TCGCapVerifiedTPMResidency OID = "\x67\x81\x05\x0b\x01\x01"
	// TCGCapVerifiedTPMFixed: see TCGCapVerifiedTPMResidency. tcg-cap-verifiedTPMFixed,
	// 2.23.133.11.1.2.
	TCGCapVerifiedTPMFixed OID = "\x67\x81\x05\x0b\x01\x02"
	// TCGCapVerifiedTPMRestricted: see TCGCapVerifiedTPMResidency.
	// tcg-cap-verifiedTPMRestricted, 2.23.133.11.1.3.
	TCGCapVerifiedTPMRestricted OID = "\x67\x81\x05\x0b\x01\x03"
	// TCGAttestTPMCertify is the statement that holds a TPM2_Certify result
	// (draft-birkholz-rats-tcg-tpm2-attestation). tcg-attest-tpm-certify, 2.23.133.20.1.
	TCGAttestTPMCertify OID = "\x67\x81\x05\x14\x01"
	// TCGAttestTPMQuote is the statement that holds a TPM2_Quote result and the values of
	// the PCRs, without their numbers. This SDK reads it and writes [NodeAttestQuote].
	// tcg-attest-tpm-quote, 2.23.133.20.2.
	TCGAttestTPMQuote OID = "\x67\x81\x05\x14\x02"
)

// Identifiers of this SDK. They are under a UUID (ITU-T X.667), not registered,
// and private: they mean nothing to other software. Their third arc does not fit in an
// asn1.ObjectIdentifier.
const (
	// nodeAttest is the arc above the others. nodeattest,
	// 2.25.274969308675442717258829974567625345604.
	nodeAttest OID = "\x69\x83\x9d\xdd\x94\xe6\xff\xec\xda\x83\xe1\x93\x94\xa1\xcc\xeb\xb6\xcb\x94\x44"
	// NodeAttestHello is the statement with which a node asks for a challenge.
	// nodeattest-hello, 2.25.274969308675442717258829974567625345604.1.
	NodeAttestHello OID = "\x69\x83\x9d\xdd\x94\xe6\xff\xec\xda\x83\xe1\x93\x94\xa1\xcc\xeb\xb6\xcb\x94\x44\x01"
	// NodeAttestProof is the statement that names the challenge that evidence answers.
	// nodeattest-proof, 2.25.274969308675442717258829974567625345604.2.
	NodeAttestProof OID = "\x69\x83\x9d\xdd\x94\xe6\xff\xec\xda\x83\xe1\x93\x94\xa1\xcc\xeb\xb6\xcb\x94\x44\x02"
	// NodeAttestQuote is the statement that holds a TPM2_Quote result and its PCRs.
	// nodeattest-quote, 2.25.274969308675442717258829974567625345604.3.
	NodeAttestQuote OID = "\x69\x83\x9d\xdd\x94\xe6\xff\xec\xda\x83\xe1\x93\x94\xa1\xcc\xeb\xb6\xcb\x94\x44\x03"
	// NodeAttestEventLog is the statement that holds a TCG event log.
	// nodeattest-event-log, 2.25.274969308675442717258829974567625345604.4.
	NodeAttestEventLog OID = "\x69\x83\x9d\xdd\x94\xe6\xff\xec\xda\x83\xe1\x93\x94\xa1\xcc\xeb\xb6\xcb\x94\x44\x04"
	// NodeAttestDocumentHello is the hello of a node whose evidence is a document.
	// nodeattest, "Wire formats".
	NodeAttestDocumentHello OID = nodeAttest + "\x05"
	// NodeAttestDocumentProof is the proof of a node whose evidence is a document.
	// nodeattest, "Wire formats".
	NodeAttestDocumentProof OID = nodeAttest + "\x06"
	// NodeAttestDocument is the statement that holds the document of a platform.
	// nodeattest, "Wire formats".
	NodeAttestDocument OID = nodeAttest + "\x07"
)

// Attributes of PKCS#10 requests (RFC 2985, 5.4; draft-ietf-lamps-csr-attestation-28).
const (
	// ExtensionRequest asks for extensions. extensionRequest, 1.2.840.113549.1.9.14.
	ExtensionRequest OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x0e"
	// ChallengePassword is a password for revocation, which OpenSSL adds when asked.
	// challengePassword, 1.2.840.113549.1.9.7.
	ChallengePassword OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x07"
	// IDAAAttestation holds an AttestationBundle; IANA lists it as id-aa-evidence.
	// id-aa-attestation, 1.2.840.113549.1.9.16.2.59.
	IDAAAttestation OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x10\x02\x3b"
)

// Extensions of certificates (RFC 5280, 4.2).
const (
	// SubjectDirectoryAttributes is id-ce-subjectDirectoryAttributes, 2.5.29.9.
	SubjectDirectoryAttributes OID = "\x55\x1d\x09"
	// SubjectKeyIdentifier is id-ce-subjectKeyIdentifier, 2.5.29.14.
	SubjectKeyIdentifier OID = "\x55\x1d\x0e"
	// KeyUsage is id-ce-keyUsage, 2.5.29.15.
	KeyUsage OID = "\x55\x1d\x0f"
	// SubjectAltName is id-ce-subjectAltName, 2.5.29.17.
	SubjectAltName OID = "\x55\x1d\x11"
	// BasicConstraints is id-ce-basicConstraints, 2.5.29.19.
	BasicConstraints OID = "\x55\x1d\x13"
	// nameConstraints is id-ce-nameConstraints, 2.5.29.30.
	nameConstraints OID = "\x55\x1d\x1e"
	// crlDistributionPoints is id-ce-cRLDistributionPoints, 2.5.29.31.
	crlDistributionPoints OID = "\x55\x1d\x1f"
	// CertificatePolicies is id-ce-certificatePolicies, 2.5.29.32.
	CertificatePolicies OID = "\x55\x1d\x20"
	// AuthorityKeyIdentifier is id-ce-authorityKeyIdentifier, 2.5.29.35.
	AuthorityKeyIdentifier OID = "\x55\x1d\x23"
	// ExtendedKeyUsage is id-ce-extKeyUsage, 2.5.29.37.
	ExtendedKeyUsage OID = "\x55\x1d\x25"
	// authorityInfoAccess is id-pe-authorityInfoAccess, 1.3.6.1.5.5.7.1.1.
	authorityInfoAccess OID = "\x2b\x06\x01\x05\x05\x07\x01\x01"
)

// Extended key usages (RFC 5280, 4.2.1.12).
const (
	// AnyExtendedKeyUsage is anyExtendedKeyUsage, 2.5.29.37.0.
	AnyExtendedKeyUsage OID = "\x55\x1d\x25\x00"
	// KpServerAuth is id-kp-serverAuth, 1.3.6.1.5.5.7.3.1.
	KpServerAuth OID = "\x2b\x06\x01\x05\x05\x07\x03\x01"
	// kpClientAuth is id-kp-clientAuth, 1.3.6.1.5.5.7.3.2.
	kpClientAuth OID = "\x2b\x06\x01\x05\x05\x07\x03\x02"
)

// Types of an otherName in a subjectAltName.
const (
	// PermanentIdentifier names a device (RFC 4043). id-on-permanentIdentifier,
	// 1.3.6.1.5.5.7.8.3.
	PermanentIdentifier OID = "\x2b\x06\x01\x05\x05\x07\x08\x03"
	// HardwareModuleName is a hardware module's type and serial number (RFC 4108, section
	// 5). id-on-hardwareModuleName, 1.3.6.1.5.5.7.8.4.
	HardwareModuleName OID = "\x2b\x06\x01\x05\x05\x07\x08\x04"
)

// Attributes of names (RFC 5280, appendix A.1).
const (
	// CommonName is id-at-commonName, 2.5.4.3.
	CommonName OID = "\x55\x04\x03"
	// SerialNumber is id-at-serialNumber, 2.5.4.5.
	SerialNumber OID = "\x55\x04\x05"
	// country is id-at-countryName, 2.5.4.6.
	country OID = "\x55\x04\x06"
	// locality is id-at-localityName, 2.5.4.7.
	locality OID = "\x55\x04\x07"
	// province is id-at-stateOrProvinceName, 2.5.4.8.
	province OID = "\x55\x04\x08"
	// Organization is id-at-organizationName, 2.5.4.10.
	Organization OID = "\x55\x04\x0a"
	// OrganizationalUnit is id-at-organizationalUnitName, 2.5.4.11.
	OrganizationalUnit OID = "\x55\x04\x0b"
)

// Public keys and named curves (RFC 3279, RFC 4055, RFC 5480, RFC 8410).
const (
	// RSAEncryption is rsaEncryption, 1.2.840.113549.1.1.1.
	RSAEncryption OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01"
	// RSAESOAEP is id-RSAES-OAEP, 1.2.840.113549.1.1.7.
	RSAESOAEP OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x07"
	// ECPublicKey is id-ecPublicKey, 1.2.840.10045.2.1.
	ECPublicKey OID = "\x2a\x86\x48\xce\x3d\x02\x01"
	// curveP224 is secp224r1, 1.3.132.0.33.
	curveP224 OID = "\x2b\x81\x04\x00\x21"
	// CurveP256 is secp256r1, 1.2.840.10045.3.1.7.
	CurveP256 OID = "\x2a\x86\x48\xce\x3d\x03\x01\x07"
	// curveP384 is secp384r1, 1.3.132.0.34.
	curveP384 OID = "\x2b\x81\x04\x00\x22"
	// curveP521 is secp521r1, 1.3.132.0.35.
	curveP521 OID = "\x2b\x81\x04\x00\x23"
	// Ed25519 is id-Ed25519, 1.3.101.112.
	Ed25519 OID = "\x2b\x65\x70"
)

// Signature algorithms (RFC 3279, RFC 4055, RFC 5758).
const (
	// SHA1WithRSA is sha1WithRSAEncryption, 1.2.840.113549.1.1.5.
	SHA1WithRSA OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05"
	// SHA256WithRSA is sha256WithRSAEncryption, 1.2.840.113549.1.1.11.
	SHA256WithRSA OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"
	// SHA384WithRSA is sha384WithRSAEncryption, 1.2.840.113549.1.1.12.
	SHA384WithRSA OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c"
	// SHA512WithRSA is sha512WithRSAEncryption, 1.2.840.113549.1.1.13.
	SHA512WithRSA OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d"
	// RSASSAPSS is id-RSASSA-PSS, 1.2.840.113549.1.1.10.
	RSASSAPSS OID = "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a"
	// ECDSAWithSHA1 is ecdsa-with-SHA1, 1.2.840.10045.4.1.
	ECDSAWithSHA1 OID = "\x2a\x86\x48\xce\x3d\x04\x01"
	// ECDSAWithSHA256 is ecdsa-with-SHA256, 1.2.840.10045.4.3.2.
	ECDSAWithSHA256 OID = "\x2a\x86\x48\xce\x3d\x04\x03\x02"
	// ECDSAWithSHA384 is ecdsa-with-SHA384, 1.2.840.10045.4.3.3.
	ECDSAWithSHA384 OID = "\x2a\x86\x48\xce\x3d\x04\x03\x03"
	// ECDSAWithSHA512 is ecdsa-with-SHA512, 1.2.840.10045.4.3.4.
	ECDSAWithSHA512 OID = "\x2a\x86\x48\xce\x3d\x04\x03\x04"
)
