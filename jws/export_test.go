package jws

// What the tests of package jws_test name.

var (
	DeriveKeyID = deriveKeyID
	ParseJWK    = parseJWK
)
