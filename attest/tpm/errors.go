package tpm

import "github.com/nodeattest/nodeattest/refusal"

// Check names one check of a verification; see [refusal.Check].
type Check = refusal.Check

// Error is a refusal; see [refusal.Error].
type Error = refusal.Error
