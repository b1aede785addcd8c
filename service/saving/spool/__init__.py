"""The spool: results on local disk, written before they are acknowledged so that they survive `kill -9`."""
