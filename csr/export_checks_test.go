package csr

// Names for the tests of package csr_test.
const (
	AnnotationVersions        = annotationVersions
	CheckAttributeNotAllowed  = checkAttributeNotAllowed
	CheckBlock                = checkBlock
	CheckBundleSize           = checkBundleSize
	CheckExpiration           = checkExpiration
	CheckExtensionNotAllowed  = checkExtensionNotAllowed
	CheckFlag                 = checkFlag
	CheckInheritedExpired     = checkInheritedExpired
	CheckInheritedMachine     = checkInheritedMachine
	CheckInheritedNode        = checkInheritedNode
	CheckInheritedPurpose     = checkInheritedPurpose
	CheckIssuedCertificate    = checkIssuedCertificate
	CheckKeyStrength          = checkKeyStrength
	CheckKeyType              = checkKeyType
	CheckNotChecked           = checkNotChecked
	CheckProviderID           = checkProviderID
	CheckProviderIDMissing    = checkProviderIDMissing
	CheckProviderIDNotVouched = checkProviderIDNotVouched
	CheckRequestDER           = checkRequestDER
	CheckRequestExtensions    = checkRequestExtensions
	CheckRequestGroups        = checkRequestGroups
	CheckRequestUsername      = checkRequestUsername
	CheckRequesterOtherNode   = checkRequesterOtherNode
	CheckRequesterPurpose     = checkRequesterPurpose
	CheckSANCount             = checkSANCount
	CheckSANForm              = checkSANForm
	CheckSANKind              = checkSANKind
	CheckSANMissing           = checkSANMissing
	CheckSANNotVouched        = checkSANNotVouched
	CheckSANOnClient          = checkSANOnClient
	CheckSANReserved          = checkSANReserved
	CheckSubjectCommonName    = checkSubjectCommonName
	CheckSubjectExtraRDN      = checkSubjectExtraRDN
	CheckSubjectMultiValue    = checkSubjectMultiValue
	CheckSubjectOrganization  = checkSubjectOrganization
	CheckUnsupportedKey       = checkUnsupportedKey
	CheckUsages               = checkUsages
	CheckVerifiedExpired      = checkVerifiedExpired
	CheckVerifiedMachine      = checkVerifiedMachine
	MaxMessageSize            = maxMessageSize
	MaxReasonSize             = maxReasonSize
	MaxRequestJSONSize        = maxRequestJSONSize
	MaxSANs                   = maxSANs
	ProviderInsecure          = providerInsecure
	ReasonIgnored             = reasonIgnored
	ReasonRefused             = reasonRefused
)
