// Package claims issues and validates bound service-account tokens.
package claims
