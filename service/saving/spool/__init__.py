"""The spool: results on local disk before they are acknowledged, so that they survive `kill -9`."""
