// Package awsid reads and verifies instance identity documents of Amazon EC2 (Amazon EC2
// User Guide, "Instance identity documents"): what AWS says about an instance, signed with
// the RSA-2048 key of its region, as /latest/dynamic/instance-identity/rsa2048 has it.
//
//	certificates, err := awsid.ParseCertificates(pem) // from AWS' pages
//	document, err := awsid.Verify(pkcs7, certificates, time.Now())
//
// # What it proves
//
// That AWS made this document about this instance, once, when it was started. It proves
// nothing about who shows it: the document takes no value of the caller's and stays the
// same for the instance's life, so whoever has read it, in a certificate request for
// example, can show it again. It is therefore no kind of evidence of a join. It tells the
// account, the region and the image of an instance whose presence is proven in another way.
//
// # What is refused
//
// Only the document's own region counts: its certificate is taken out of a table by the
// region that the document names, and must be the one that the signature names. A pool of
// all regions' certificates would let one region's key speak for all. The other two
// signatures that AWS offers are refused with [CheckAlgorithm]: /signature, whose RSA-1024
// key is the same in 17 regions, and /pkcs7, with DSA and SHA-1.
//
// The encoding is BER with indefinite lengths. This package reads the one shape that AWS
// sends and nothing else, in one pass whose depth the code fixes: a general decoder of BER
// is open to inputs that cost it time and memory beyond measure.
package awsid
