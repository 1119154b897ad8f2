package claims

// MaxClaimsSize is the most bytes that a claim set may have. kube-apiserver's own are
// about 500 bytes long; audiences make up the rest.
const MaxClaimsSize = 64 << 10
