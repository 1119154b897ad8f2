// Package jws signs and verifies JSON Web Signatures (RFC 7515).
package jws
