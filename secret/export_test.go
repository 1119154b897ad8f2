package secret

// ErrEncoding is for the tests from outside.
var ErrEncoding = errEncoding
