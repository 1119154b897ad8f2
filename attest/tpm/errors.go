package tpm

import "github.com/nodeattest/nodeattest/refusal"

// Check names one check of a verification; see [refusal.Check]. Every refusal of this
// package is an [*Error] that carries one.
type Check = refusal.Check

// Error is a refusal: the check that failed, and what was found where what was expected;
// see [refusal.Error]. On Kubernetes its Reason is the reason of the Denied condition that
// it becomes. The node files again after HelloExpired ([CheckHelloExpired]).
type Error = refusal.Error
