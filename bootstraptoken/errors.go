package bootstraptoken

import "github.com/nodeattest/nodeattest/refusal"

// Check names one check of this package; see [refusal.Check].
type Check = refusal.Check

// ErrRetry says that a question could not be answered now, neither yes nor no: the
// caller asks again later. It is never a refusal.
const ErrRetry = refusal.ErrRetry

// Error is one failed check; see [refusal.Error]. Got and Want never hold a token's secret,
// nor anything that a slip of the pen could have made one, such as a whole token in the
// place of its ID.
type Error = refusal.Error
