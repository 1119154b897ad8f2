package message

import "github.com/nodeattest/nodeattest/refusal"

// Checks that the join and a kind of evidence have in common: each means the same in both.
const (
	// CheckQualifyingData: a statement covers qualifying data other than the expected.
	CheckQualifyingData refusal.Check = "qualifying-data"
	// CheckKeyMismatch: the key in question is not that of the request.
	CheckKeyMismatch refusal.Check = "key-mismatch"
)
