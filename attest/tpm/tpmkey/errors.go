package tpmkey

import "github.com/nodeattest/nodeattest/refusal"

// Check names one check of a verification; see [refusal.Check].
type Check = refusal.Check

// Error is a refusal: the check that failed, what was found and what was expected; see
// [refusal.Error].
type Error = refusal.Error
