package attest

import (
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check of a verification; see [refusal.Check]. Every refusal by this package
// is an [*Error] that carries one.
type Check = refusal.Check

// Error is a refusal: the check that failed, what was found and what was expected; see
// [refusal.Error]. On Kubernetes its Reason is the reason of the Denied condition that it
// becomes. The node files again after HelloExpired ([CheckHelloExpired]).
type Error = refusal.Error

// Checks of the messages' encoding.
const (
	// checkEncoding: a message is not the DER that the wire format requires, or a value is out
	// of range.
	checkEncoding = der.CheckEncoding
	// checkSize: a message is over its size limit.
	checkSize = der.CheckSize
	// checkVersion: a message states a version other than 1.
	checkVersion = der.CheckVersion
)
