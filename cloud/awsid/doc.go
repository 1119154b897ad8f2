// Package awsid reads and verifies instance identity documents of Amazon EC2 (Amazon EC2 User
// Guide, "Instance identity documents"): what AWS says about an instance, signed with the
// RSA-2048 key of its region, as served at /latest/dynamic/instance-identity/rsa2048.
//
//	certificates, err := awsid.ParseCertificates(pem) // from AWS' pages
//	document, err := awsid.Verify(pkcs7, certificates, time.Now())
//
// # What it proves
//
// That AWS made this document about this instance, once, when it was started. It proves
// nothing about who presents it: the document includes no value chosen by the caller and stays
// the same for the instance's life, so anyone who has read it, in a certificate request for
// example, can present it again. By itself it is therefore not evidence for a join. It tells the
// account, region and image of an instance whose presence is proven in another way, as package
// ec2 does.
//
// # What is refused
//
// Only the document's own region counts: its certificate is looked up in a table by the region
// that the document names, and must be the one that the signature names. A pool of all regions'
// certificates would let one region's key speak for all. The other two signatures that AWS
// offers are refused with the check "awsid-algorithm": /signature, whose RSA-1024 key is the
// same in 17 regions, and /pkcs7, with DSA and SHA-1.
//
// The encoding is BER with indefinite lengths. This package reads the one shape that AWS sends
// and nothing else, in one pass whose depth is fixed by the code: a general BER decoder is
// open to inputs that cost it excessive time and memory.
package awsid
