// Package cloud is the root of a module whose packages verify the documents with which
// clouds say which machine answers a challenge of package attest.
package cloud
